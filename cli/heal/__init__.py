"""Replicas for --heal-from: directories and live brokers."""
