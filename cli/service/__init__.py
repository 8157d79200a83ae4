"""Commands that run or ask the service: run, serve, scrub, status, config."""
