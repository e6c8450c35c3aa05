"""Whole documents packed into windows; an index on disk has the pieces of each window.

pieces, best_fit -> index -> packed
"""
