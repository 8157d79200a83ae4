"""Requests on groups, committed offsets and transactions."""
