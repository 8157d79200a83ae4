"""logmend recover, plan and apply."""
