"""What was verified when: reads past the page cache, and the SQLite ledger."""
