"""The records of `__consumer_offsets`: keys and values, read and written."""
