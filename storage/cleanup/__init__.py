"""Both cleanup policies: delete and compact."""
