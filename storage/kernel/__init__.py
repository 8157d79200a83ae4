"""The loops over the bytes of batches, in C and in Python, with the same results."""
