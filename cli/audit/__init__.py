"""logmend audit and its subcommands."""
