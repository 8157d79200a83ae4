"""The values that the rooms of recovery exchange: findings, decisions, plans."""
