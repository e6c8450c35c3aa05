"""Division of the tokens of a set into files: one, or shards of equal length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Which file holds which token, for a set that is written from its first token on.

    A shard is an `.npy` of tokens with a `.docs.npy` of document starts, counted from the first token of the
    shard. A document that began in an earlier shard has no start in it.
    """

    shard_tokens: int | None = None
    """Tokens of every shard but the last, which may have fewer; None: one file."""
    first_shard: int = 0
    """Number of the first shard, if others exist before it (`--append`)."""

    def names(self, shard: int) -> tuple[str, str]:
        """Return the file names of tokens and document starts of the shard with this index, from 0."""
        if self.shard_tokens is None:
            return "tokens.npy", "docs.npy"
        name = f"shard_{self.first_shard + shard:05d}"
        return f"{name}.npy", f"{name}.docs.npy"

    def shard_of(self, token: int) -> int:
        """Return the index of the shard that holds the token."""
        return 0 if self.shard_tokens is None else token // self.shard_tokens

    def last_shard(self, tokens: int) -> int:
        """Return the index of the shard that holds the last of `tokens` tokens."""
        return self.shard_of(max(tokens - 1, 0))

    def first_token(self, shard: int) -> int:
        return shard * (self.shard_tokens or 0)

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, first token, token after the last) of each shard; one empty span for no tokens."""
        if start == stop:
            yield self.last_shard(start), start, stop
        while start < stop:
            shard = self.shard_of(start)
            end = stop if self.shard_tokens is None else min(stop, self.first_token(shard + 1))
            yield shard, start, end
            start = end


ONE_FILE = Layout()
