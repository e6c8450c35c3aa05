"""Tokens that are computed at each read: each is a function of its index and a seed.

counter_hash -> law -> uniform, zipf, markov, copied -> synthetic_uri -> synthetic_set
"""
