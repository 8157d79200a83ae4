"""Kafka's wire protocol over the log engine, or over an unrepaired directory that is only read."""
