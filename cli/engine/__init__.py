"""Commands on a log of one's own: append, read, topics, explain."""
