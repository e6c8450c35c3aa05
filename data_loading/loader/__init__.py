"""Loaders: batches of a dataset for one rank, resumable from a state of three values.

protocol (what a loader reads) -> prefetch -> loader -> batches
"""
