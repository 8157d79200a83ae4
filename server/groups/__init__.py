"""Consumer groups and their committed offsets, as the group coordinator of Kafka keeps them."""
