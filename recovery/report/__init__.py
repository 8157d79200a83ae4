"""Words for people and JSON for programs."""
