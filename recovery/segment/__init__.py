"""What is wrong with one segment."""
