"""Comparison of an engine with the reference on parts of the text that it is to encode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.reference import ReferenceEngine
from data_loading.tokenizers.tokenizer import DefinedTokenizer

_PIECE_CHARACTERS = 1 << 12
"""Bounds the memory of the reference tokenizer, which is fastest on short texts."""
HERE_BELOW = 1 << 17
"""Bytes of samples that are compared before the work starts, because that takes no time."""
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Verdict:
    """refusal: why the engine cannot encode with the tokenizer. difference: a short text that the
    engine and the reference encode differently. Both None: all ids were equal.
    """

    refusal: str | None = None
    difference: str | None = None


class IdsDiffer(Exception):
    """The engine gave other ids than the reference."""


class Comparison:
    """Comparison in a thread of its own, while the engine is at work already.

    Args:
        engine: The one that encodes the text.
        tokenizer: Of the engine.
        samples: UTF-8.
    """

    def __init__(self, engine: Engine, tokenizer: DefinedTokenizer, samples: Sequence[bytes]) -> None:
        self._thread = ThreadPoolExecutor(1, "compare")
        self._difference = self._thread.submit(_difference, engine, tokenizer, samples)

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


def hold_against_reference(
    engine: type[Engine], tokenizer: DefinedTokenizer, samples: Sequence[bytes]
) -> Verdict:
    """Compare the ids of all samples (UTF-8) in this thread."""
    try:
        found = engine.of(tokenizer)
        found.load()
    except Unsupported as why:
        return Verdict(refusal=str(why))
    return Verdict(difference=_difference(found, tokenizer, samples))


def _difference(engine: Engine, tokenizer: DefinedTokenizer, samples: Sequence[bytes]) -> str | None:
    reference = ReferenceEngine.of(tokenizer)
    reference.load()
    engine.load()
    pieces = [piece for sample in samples for piece in pieces_of(sample)]
    return first_difference(engine, reference, pieces)


def first_difference(engine: Engine, reference: Engine, texts: Sequence[bytes]) -> str | None:
    """A short part of the first text that the two encode differently; None when all ids are equal.

    The engine gets all texts at once, as in its work; the reference one at a time.
    """
    ids, lengths = engine.encode_batch(texts)
    ends = np.cumsum(lengths)
    for text, length, end in zip(texts, lengths, ends, strict=True):
        if not np.array_equal(ids[end - length : end], reference.encode_batch([text])[0]):
            return _shortest(engine, reference, text.decode())
    return None


def _shortest(engine: Engine, reference: Engine, text: str) -> str:
    """The text without what can be taken from its two ends so that the two still differ."""

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
    """Texts of their own: any part of a text will do for comparing."""
    text = sample.decode()
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS].encode()
