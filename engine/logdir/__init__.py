"""One owned log directory and its partitions: opened, recovered, locked, closed."""
