"""The small text files beside the segments."""
