"""The words of the formats: offsets, names, settings, errors; no input or output."""
