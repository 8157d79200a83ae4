"""Commands that only read: verify, dump, manifest."""
