"""Connections of Kafka clients: sockets, TLS, authentication, limits."""
