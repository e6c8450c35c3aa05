"""Datasets over tokens: the order of windows, and the kinds of batches that are made of them.

permutation -> orders -> batch_kinds, packing -> batch_options -> streaming_dataset
"""
