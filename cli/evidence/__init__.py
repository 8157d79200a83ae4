"""Commands on what was cut: quarantine, losses."""
