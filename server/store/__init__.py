"""The logs that requests read and write."""
