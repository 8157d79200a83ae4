"""Flags, environment and configuration files as settings of a command."""
