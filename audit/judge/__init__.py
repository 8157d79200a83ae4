"""Compares replicas and gives verdicts; no Spark."""
