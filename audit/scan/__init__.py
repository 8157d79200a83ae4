"""What one task reads of one log directory; no Spark."""
