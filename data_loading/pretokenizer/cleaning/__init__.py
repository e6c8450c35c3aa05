"""Cleaning and deduplication of documents while they are read."""
