"""What each user may do: rules, and the check of every request before its handler."""
