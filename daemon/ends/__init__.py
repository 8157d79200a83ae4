"""Follows the ends of logs: folds what a broker appends, and marks how far recovery need not read it again."""
