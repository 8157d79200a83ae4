"""The service: it guards the log directories of brokers, runs those that logmend owns, and reports what it finds."""
