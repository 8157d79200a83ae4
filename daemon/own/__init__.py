"""Workers for the log directories that logmend owns."""
