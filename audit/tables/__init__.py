"""The tables of an audit: schema, options, reading and writing."""
