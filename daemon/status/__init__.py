"""The state of the service as one value, and its renderings."""
