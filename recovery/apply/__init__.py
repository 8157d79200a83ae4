"""Carries a plan out; the only room, beside the quarantine, that is given a writable file system."""
