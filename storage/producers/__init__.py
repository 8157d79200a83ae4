"""Producer ids, sequences, open transactions, and the .snapshot files that hold them."""
