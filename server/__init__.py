"""Serves the log engine, or a directory that nobody has repaired, to Kafka clients."""
