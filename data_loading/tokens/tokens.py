"""Base class of all token sets: in files, remote, computed or in memory."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from data_loading.tokens.lazy_array import Values
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from data_loading.readers.choose_reader import ReaderOptions
    from data_loading.readers.reader import Reader
    from data_loading.tokens.shards import Part

UNKNOWN = "unknown"
"""Name of a tokenizer that is not known."""


class Tokens(abc.ABC):
    """Ids in one order."""

    tokens: Values
    """1-D integers."""
    documents: Values | None
    """uint64 starts in `tokens`, ascending from 0; None if they are not known."""
    vocab_size: int
    """Ids are below it."""
    fingerprint: str
    """Hash of what decides the ids, independent of their place."""
    val_set: Tokens | None = None
    """Set that was found next to this one as its val, such as X/val of X/train."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Path or URI, as the user gave it."""

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def eot_id(self) -> int | None:
        """End-of-text id of the tokenizer; None if it has none or is not known."""
        return None

    @property
    def begin_ids(self) -> tuple[int, ...]:
        """Ids of which the format puts one before each document; empty if it puts none."""
        return ()

    @property
    def tokenizer_name(self) -> str:
        return UNKNOWN

    @property
    def file_bytes(self) -> int:
        """Bytes of the token files; 0 without files."""
        return 0

    @property
    def held_out(self) -> tuple[range, ...] | None:
        """Ranges that the set itself holds out as val; None: a run decides."""
        return None

    @property
    def sources(self) -> list[tuple[int, int]]:
        """Tokens and documents of each source text; empty if they are not known."""
        return []

    @property
    def file_borders(self) -> list[int]:
        """Position of the first token of each file, and the number of tokens."""
        return [0, self.n_tokens]

    @property
    def checksums(self) -> tuple[list[Part], int]:
        """Token files with the checksums of their blocks, and bytes of a block.

        Raises:
            UserError: There are none.
        """
        raise UserError(
            f"{self.name} has no checksums to verify its blocks with. Remove verify=blocks",
            code="no-checksums",
        )

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        """Return the least expected loss (nats a label) of any model; None if it is not known.

        See `data_loading.dataset.baselines`.

        Args:
            starts: First token of each window, int64.
            seq_len: Tokens of a window.
            shift: Distance of a label from its input.
            masked: Whether attention ends at document borders.
        """
        return None

    def overlaps(self, other: Tokens) -> bool:
        """Whether both are known to share tokens, as two lengths of one computed set do."""
        return False

    @property
    def derived_folder(self) -> Path | None:
        """Hidden folder for what is computed from the tokens and can be removed; None without files."""
        return None

    def own_reader(self, options: ReaderOptions) -> tuple[Reader, str] | None:
        """Return a reader and a line about it, for tokens that are not in files here; None for all others.

        Raises:
            UserError: Such tokens cannot be read with these options.
        """
        return None
