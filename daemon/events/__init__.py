"""What happened: the log, the counters, the notifier."""
