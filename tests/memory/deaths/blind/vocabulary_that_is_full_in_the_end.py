"""A count of words grows with each document, steeply at first, and then all words are known."""

# /// case
# kind = "healthy"
# limit_mb = 80
# ///

import random

from kit import over

WORDS = 450_000
counts: dict[str, int] = {}
draw = random.Random(1)


def count(document: int) -> None:
    begin = document * 30_000
    for word in range(begin, min(begin + 30_000, WORDS)):
        counts[f"word_{word:07d}"] = 1
    for word in draw.choices(range(min(begin + 1, WORDS)), k=5_000):
        counts[f"word_{word:07d}"] += 1


over(5, 50, count)
assert len(counts) == WORDS
print(len(counts), "words", sum(counts.values()), "tokens")
