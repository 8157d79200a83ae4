"""One log directory: all its partitions, then its checkpoints."""
