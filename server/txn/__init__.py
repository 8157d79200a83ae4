"""Transactions by their first protocol: the state machine of an id, its records, and the coordinator."""
