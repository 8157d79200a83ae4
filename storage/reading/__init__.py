"""Walks over the batches of one .log file."""
