"""Batch headers, records, control records and KRaft records: parsed and written."""
