"""Bounded decompression, as Kafka's readers do it."""
