"""One partition, from its listing to its plan."""
