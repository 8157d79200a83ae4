"""The one door to the disk, and the file systems put around it."""
