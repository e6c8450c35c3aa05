"""The plan of a run: a function of its configuration and data, without torch."""
