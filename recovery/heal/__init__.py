"""Good bytes from a replica."""
