"""Status, metrics and the page over HTTP."""
