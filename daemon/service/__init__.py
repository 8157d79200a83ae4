"""Puts the parts of the service together and runs them."""
