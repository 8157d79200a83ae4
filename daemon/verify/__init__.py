"""Reads one segment, judges it, and keeps what follows: findings, plans, sick devices."""
