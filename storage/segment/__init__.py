"""The files of one base offset as one segment."""
