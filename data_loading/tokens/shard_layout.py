"""How the tokens of a set lie in files: all in one, or in shards of equal length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Which file holds which token, for a set that is written from its first token on.

    shard_tokens: tokens of every shard but the last, which may have fewer; None: one file. first_shard:
    its number, where others lie before it (`--append`).

    A shard is a plain `.npy` of tokens with a `.docs.npy` beside it: where documents start, counted from
    the first token of the shard. A document that began in an earlier shard has no start in it.
    """

    shard_tokens: int | None = None
    first_shard: int = 0

    def names(self, shard: int) -> tuple[str, str]:
        """File names of tokens and document starts of the shard with this index, which counts from 0."""
        if self.shard_tokens is None:
            return "tokens.npy", "docs.npy"
        name = f"shard_{self.first_shard + shard:05d}"
        return f"{name}.npy", f"{name}.docs.npy"

    def shard_of(self, token: int) -> int:
        """Index of the shard that holds the token."""
        return 0 if self.shard_tokens is None else token // self.shard_tokens

    def last_shard(self, tokens: int) -> int:
        """Index of the shard that holds the last of so many tokens."""
        return self.shard_of(max(tokens - 1, 0))

    def first_token(self, shard: int) -> int:
        return shard * (self.shard_tokens or 0)

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(shard, first token, token after the last) of each shard's part; one empty part of no tokens."""
        if start == stop:
            yield self.last_shard(start), start, stop
        while start < stop:
            shard = self.shard_of(start)
            end = stop if self.shard_tokens is None else min(stop, self.first_token(shard + 1))
            yield shard, start, end
            start = end


ONE_FILE = Layout()
