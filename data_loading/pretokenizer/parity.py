"""An engine held against the reference on parts of the very text that it is to encode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conf import UserError
from data_loading.pretokenizer.children import Channel, Child, cores, how_it_died, oom_kills, with_news
from data_loading.pretokenizer.engine import Engine, Unsupported
from data_loading.pretokenizer.reference_engine import ReferenceEngine
from data_loading.tokenizer import JsonTokenizer

_PIECE_CHARACTERS = 1 << 12
"""Bounds the memory of the reference tokenizer, which is fastest on short texts."""
HERE_BELOW = 1 << 17
"""Bytes of samples that are compared in this process: starting another one would take longer."""
_MOST_PROCESSES = 4
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Verdict:
    """refusal: why the engine cannot encode with the tokenizer. difference: a short text that the
    engine and the reference encode differently. Both None: all ids were equal.
    """

    refusal: str | None = None
    difference: str | None = None


def hold_against_reference(
    engine: type[Engine], tokenizer: JsonTokenizer, samples: Sequence[bytes]
) -> Verdict:
    """Compare the ids of all samples (UTF-8).

    Where it is worth it, in processes of their own, which end with this: the two tokenizers take more
    memory than all else that the caller holds.

    Raises:
        UserError: such a process died.
    """
    pieces = [piece for sample in samples for piece in pieces_of(sample)]
    if sum(map(len, pieces)) < HERE_BELOW:
        return Trial(engine, tokenizer, pieces).verdict()
    kills = oom_kills()
    count = min(cores(), _MOST_PROCESSES, len(pieces))
    bare = replace(tokenizer)  # without what it has worked out and keeps
    with ExitStack() as stack:
        children = []
        for first in range(count):
            child = Child(Trial(engine, bare, pieces[first::count]))
            stack.callback(child.end)
            children.append(child)
        verdicts = [answer_of(child, engine, kills) for child in children]
    return next((v for v in verdicts if v.refusal or v.difference), verdicts[0])


def answer_of(child: Child, engine: type[Engine], kills: int | None) -> Any:
    """What the child answers. Raises UserError where it died."""
    while not with_news([child], 0.25):
        child.note_memory()
    try:
        found = child.answer()
    except (EOFError, OSError):
        raise UserError(
            f"comparing engine {engine.name} with the reference tokenizer: {how_it_died(child, kills)}"
        ) from None
    if isinstance(found, Exception):
        raise found
    return found


@dataclass(frozen=True)
class Trial:
    """One engine against the reference on some texts."""

    engine: type[Engine]
    tokenizer: JsonTokenizer
    texts: list[bytes]

    def run(self, channel: Channel) -> None:
        """In a child process."""
        try:
            channel.answer(0, self.verdict())
        except UserError as error:
            channel.answer(0, error)

    def verdict(self) -> Verdict:
        try:
            engine = self.engine.of(self.tokenizer)
            engine.load()
        except Unsupported as why:
            return Verdict(refusal=str(why))
        return Verdict(difference=first_difference(engine, ReferenceEngine.of(self.tokenizer), self.texts))


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
