"""Consumer groups as Kafka's group coordinator keeps them, for the classic protocol of members that join and sync."""
