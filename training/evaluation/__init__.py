"""Held-out losses."""
