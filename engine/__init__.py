"""The log engine's upper half: log directories that logmend owns, opened, kept and closed."""
