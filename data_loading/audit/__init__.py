"""Checks of a token set: its manifest, its ids against the reference tokenizer, and statistics of it."""
