"""Tokens that are computed where they are read: each is a function of its index and a seed."""
