"""Requests on records: produce, fetch, list offsets."""
