"""What a log directory is run with: options, a broker's settings, ids, refusals."""
