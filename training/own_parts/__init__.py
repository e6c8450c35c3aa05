"""The user's own parts in training: their contracts, what a plan must know of them, and their copies."""
