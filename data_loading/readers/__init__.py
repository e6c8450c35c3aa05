"""Readers of tokens: memory maps, pread(2) or a copy in memory give the same values."""
