"""The kernel in Python: the readable reference that the C kernel is held against."""
