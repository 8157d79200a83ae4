"""What the bytes of a Kafka log directory mean, and the one door to the disk."""
