"""An engine held against the reference while it is at work already.

The samples go through the workers as their first block, and a process of its own encodes them with the
reference meanwhile. Nothing that was made counts before the two were found equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_loading.children import Channel, Child, oom_kills, with_news
from data_loading.pretokenizer.blocks import Block, Chunk, EncodedBlock
from data_loading.pretokenizer.engine import Engine
from data_loading.pretokenizer.parity import answer_of, pieces_of
from data_loading.pretokenizer.reference_engine import ReferenceEngine, joined
from data_loading.tokenizer import DefinedTokenizer

_INDEX = -1
"""Of the block of samples: before all blocks of the text."""


class IdsDiffer(Exception):
    """The engine gave other ids than the reference."""


@dataclass(frozen=True)
class _Encode:
    """The reference on some texts, in a child process."""

    tokenizer: DefinedTokenizer
    texts: list[bytes]

    def run(self, channel: Channel) -> None:
        reference = ReferenceEngine.of(self.tokenizer)
        channel.answer(0, joined([reference.encode_batch([text])[0] for text in self.texts])[0])


class Comparison:
    """Begun before the workers are, since the reference takes longer.

    engine: the kind that encodes. samples: UTF-8. on_equal: called once when all ids were equal.
    """

    def __init__(self, engine: type[Engine], tokenizer: DefinedTokenizer, samples: Sequence[bytes]) -> None:
        self._pieces = [piece for sample in samples for piece in pieces_of(sample)]
        self.engine, self._kills = engine, oom_kills()
        self._child: Child | None = Child(_Encode(replace(tokenizer), self._pieces))  # type: ignore[type-var]
        self._found: np.ndarray | None = None
        self.on_equal: Callable[[], None] = lambda: None

    def first(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The block of samples, then the blocks."""
        yield Block(_INDEX, [Chunk(piece, "samples", 0, False) for piece in self._pieces])
        for block in blocks:
            self._note_memory()
            yield block

    def watch(self, encoded: Iterator[EncodedBlock]) -> Iterator[EncodedBlock]:
        """What was made of the blocks; looks for the verdict after each.

        Raises:
            IdsDiffer: there is one, and it is not that.
            ComparisonDied: there will be none.
        """
        for block in encoded:
            self._note_memory()
            if block.index == _INDEX:
                self._found = block.ids
                continue
            if self._child is not None and with_news([self._child], 0):
                self.settle()
            yield block

    def _note_memory(self) -> None:
        if self._child is not None:
            self._child.note_memory()

    def settle(self) -> None:
        """Wait for the verdict. Raises IdsDiffer, or ComparisonDied."""
        if self._child is None:
            return
        expected = answer_of(self._child, self.engine, self._kills)
        self.end()
        assert self._found is not None
        if not np.array_equal(self._found, expected):
            raise IdsDiffer
        self.on_equal()

    def end(self) -> None:
        """Stop the process, if it is still at work."""
        if self._child is not None:
            self._child.end()
            self._child = None
