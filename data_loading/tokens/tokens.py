"""Tokens: what splits are cut from, whatever holds them."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from data_loading.tokens.lazy_array import Values
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from data_loading.readers.choose_reader import ReaderOptions
    from data_loading.readers.extents import Extents
    from data_loading.readers.reader import Reader
    from data_loading.tokens.shards import Part

UNKNOWN = "unknown"
"""The name of a tokenizer that nothing says."""


class Tokens(abc.ABC):
    """Ids in one order.

    tokens: 1-D integers. documents: uint64 starts in `tokens`, ascending from 0; None where nothing says.
    vocab_size: ids are below it. fingerprint: of what decides the ids, never of where they lie.
    """

    tokens: Values
    documents: Values | None
    vocab_size: int
    fingerprint: str

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Where they are, as a user gave it: a path, a URI."""

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def eot_id(self) -> int | None:
        """Of the tokenizer they were made with; None where it has none or nothing says."""
        return None

    @property
    def begin_ids(self) -> tuple[int, ...]:
        """Ids of which one is put before each document, as their format says; empty where it says nothing."""
        return ()

    @property
    def tokenizer_name(self) -> str:
        return UNKNOWN

    @property
    def file_bytes(self) -> int:
        """Of the token files; 0 where there is none."""
        return 0

    @property
    def held_out(self) -> tuple[range, ...] | None:
        """What they were made with as val; None: nothing."""
        return None

    @property
    def sources(self) -> list[tuple[int, int]]:
        """Tokens and documents of each text they were made from; empty where nothing says."""
        return []

    @property
    def file_borders(self) -> list[int]:
        """The first token of each file that they lie in, and the number of all."""
        return [0, self.n_tokens]

    @property
    def checksums(self) -> tuple[list[Part], int]:
        """The token files with the checksums of their blocks, and bytes of a block.

        Raises:
            UserError: there are none.
        """
        raise UserError(
            f"{self.name} has no checksums to verify its blocks with. Take verify=blocks away",
            code="no-checksums",
        )

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        """The least expected loss (nats a label) of any model over the windows that begin at these tokens
        (int64); None where nobody knows, as of all text. See `data_loading.dataset.baselines`.
        """
        return None

    def overlaps(self, other: Tokens) -> bool:
        """Whether it is known of both that they hold the same tokens in part, as sets of one rule do."""
        return False

    @property
    def beside(self) -> Path | None:
        """A hidden folder, there or not, for what is made of them and can be made again; None: nowhere."""
        return None

    @property
    def extents(self) -> Extents:
        """Where the tokens lie in files or memory."""
        from data_loading.readers.extents import extents_of

        return extents_of(self.tokens)

    def open_reader(self, options: ReaderOptions) -> tuple[Reader, str]:
        """What reads them, and what it is and why, in a line.

        Raises:
            UserError: an unknown reader, or one that cannot serve these tokens.
        """
        from data_loading.readers.block_checks import CheckedReader
        from data_loading.readers.choose_reader import open_reader

        reader, told = open_reader(self.extents, options)
        if options.verify == "blocks":
            reader = CheckedReader(reader, *self.checksums)
        return reader, told
