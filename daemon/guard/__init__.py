"""Follows the log directory of a running broker."""
