"""A run from its first stage to its end."""
