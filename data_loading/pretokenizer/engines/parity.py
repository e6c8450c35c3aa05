"""Comparison of an engine with the reference on parts of the text that it is to encode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

from data_loading.pretokenizer.engines.base import Engine
from data_loading.pretokenizer.engines.reference import ReferenceEngine
from data_loading.tokenizers.tokenizer import DefinedTokenizer

_PIECE_CHARACTERS = 1 << 12
"""Bounds the memory of the reference tokenizer, which is fastest on short texts."""
HERE_BELOW = 1 << 17
"""Samples of fewer bytes are compared before the work starts."""
_SHOWN_CHARACTERS = 80


class IdsDiffer(Exception):
    """The engine gave other ids than the reference."""


class Comparison:
    """Comparison of an engine with the reference in a thread, while the engine encodes already.

    Args:
        engine: The engine that encodes the text.
        tokenizer: Tokenizer of the engine.
        samples: Parts of the text, UTF-8.
    """

    def __init__(self, engine: Engine, tokenizer: DefinedTokenizer, samples: Sequence[bytes]) -> None:
        self._thread = ThreadPoolExecutor(1, "compare")
        self._difference = self._thread.submit(difference_on, engine, tokenizer, samples)

    @property
    def is_done(self) -> bool:
        return self._difference.done()

    def settle(self) -> None:
        """Wait for the result. Raises IdsDiffer, or Unsupported if the engine cannot be loaded."""
        if self._difference.result() is not None:
            raise IdsDiffer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()


def difference_on(engine: Engine, tokenizer: DefinedTokenizer, samples: Sequence[bytes]) -> str | None:
    """Compare an engine with the reference on all samples (UTF-8).

    Returns:
        A short text that the two encode differently; None if all ids are equal.

    Raises:
        Unsupported: The engine cannot be loaded.
    """
    reference = ReferenceEngine(tokenizer)
    reference.load()
    engine.load()
    return first_difference(engine, reference, [piece for sample in samples for piece in pieces_of(sample)])


def first_difference(engine: Engine, reference: Engine, texts: Sequence[bytes]) -> str | None:
    """Find the first text that the two encode differently.

    The engine encodes all texts in one call, as in its work, the reference one text a call.

    Returns:
        A short part of that text; None if all ids are equal.
    """
    ids, lengths = engine.encode_batch(texts)
    ends = np.cumsum(lengths)
    for text, length, end in zip(texts, lengths, ends, strict=True):
        if not np.array_equal(ids[end - length : end], reference.encode_batch([text])[0]):
            return _shortest(engine, reference, text.decode())
    return None


def _shortest(engine: Engine, reference: Engine, text: str) -> str:
    """Shorten the text from both ends while the two still encode it differently."""

    def differ(part: str) -> bool:
        data = [part.encode()]
        return not np.array_equal(engine.encode_batch(data)[0], reference.encode_batch(data)[0])

    if not differ(text):  # only after other texts: nothing shorter can show it
        return _shown(text)
    step = len(text) // 2
    while step:
        if step < len(text) and differ(text[step:]):
            text = text[step:]
        elif step < len(text) and differ(text[:-step]):
            text = text[:-step]
        else:
            step //= 2
    return _shown(text)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def pieces_of(sample: bytes) -> Iterator[bytes]:
    """Divide a sample into short texts: any part of a text can be compared."""
    text = sample.decode()
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS].encode()
