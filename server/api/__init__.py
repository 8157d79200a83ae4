"""Which requests are served, how they are dispatched, and which error codes answer."""
