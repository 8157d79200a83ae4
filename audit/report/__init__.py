"""The page that shows an audit."""
