"""The index files: .index, .timeindex and .txnindex."""
