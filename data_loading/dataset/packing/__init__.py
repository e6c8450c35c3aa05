"""Whole documents in windows of one length: which stand together in one is an index on disk."""
