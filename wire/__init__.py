"""The Kafka wire protocol, without sockets: frames, messages, and how they are written."""
