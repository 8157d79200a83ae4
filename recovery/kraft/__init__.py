"""What the metadata log says, read offline."""
