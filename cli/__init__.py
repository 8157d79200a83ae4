"""The command `logmend`."""
