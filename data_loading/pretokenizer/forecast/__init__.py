"""Estimates of a token set before it is made: tokens, disk space, what --dry-run prints."""
