"""Requests on topics and their configuration."""
