"""An engine held against the reference on parts of the very text that it is to encode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_loading.children import Channel, Child, cores, how_it_died, oom_kills, with_news
from data_loading.pretokenizer.engine import Engine, Unsupported
from data_loading.pretokenizer.reference_engine import ReferenceEngine
from data_loading.tokenizer import DefinedTokenizer
from experiment_utils.errors import UserError

_PIECE_CHARACTERS = 1 << 12
"""Bounds the memory of the reference tokenizer, which is fastest on short texts."""
HERE_BELOW = 1 << 17
"""Bytes of samples that are compared in this process: starting another one would take longer."""
_MOST_PROCESSES = 4
_LOOK_S = 0.1
"""How often their memory is looked at meanwhile, so that a killed one can be described."""
_SHOWN_CHARACTERS = 80

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """refusal: why the engine cannot encode with the tokenizer. difference: a short text that the
    engine and the reference encode differently. Both None: all ids were equal.
    """

    refusal: str | None = None
    difference: str | None = None


class ComparisonDied(UserError):
    """A process that compares ended without an answer."""

    code = "comparison-died"


def hold_against_reference(
    engine: type[Engine],
    tokenizer: DefinedTokenizer,
    samples: Sequence[bytes],
    log: Callable[[str], None] = _log.warning,
) -> Verdict:
    """Compare the ids of all samples (UTF-8).

    Where it is worth it, in processes of their own, which end with this: the two tokenizers take more
    memory than all else that the caller holds. What one that dies was to compare, another one does when
    no other is left; `log` gets a line.

    Raises:
        ComparisonDied: that one died too.
    """
    pieces = [piece for sample in samples for piece in pieces_of(sample)]
    if sum(map(len, pieces)) < HERE_BELOW:
        return Trial(engine, tokenizer, pieces).verdict()
    count = min(cores(), _MOST_PROCESSES, len(pieces))
    bare = replace(tokenizer)  # type: ignore[type-var]  # without what it has worked out and keeps
    trials = [Trial(engine, bare, pieces[first::count]) for first in range(count)]
    verdicts, dead = [], []
    for trial, found in zip(trials, _answers(trials), strict=True):
        if isinstance(found, ComparisonDied):
            log(f"WARNING: {found}. What it was to compare is compared again, alone")
            dead.append((trial, found))
        else:
            verdicts.append(found)
    verdicts += [_alone(trial, error) for trial, error in dead]
    return next((v for v in verdicts if v.refusal or v.difference), verdicts[0])


def _answers(trials: Sequence[Trial]) -> list[Verdict | ComparisonDied]:
    """Of a process for each; all have ended then."""
    kills, found = oom_kills(), list[Verdict | ComparisonDied]()
    with ExitStack() as stack:
        children = []
        for trial in trials:
            children.append(Child(trial))
            stack.callback(children[-1].end)
        for number, trial in enumerate(trials):
            try:
                found.append(answer_of(children[number], trial.engine, kills, children[number:]))
            except ComparisonDied as error:
                found.append(error)
    return found


def _alone(trial: Trial, before: ComparisonDied) -> Verdict:
    (found,) = _answers([trial])
    if isinstance(found, ComparisonDied):
        raise ComparisonDied(
            f"{before}; then, alone: {found}. Where it is memory, give the job more. Older outputs are "
            "untouched"
        )
    return found


def answer_of(child: Child, engine: type[Engine], kills: int | None, at_work: Sequence[Child] = ()) -> Any:
    """What the child answers. at_work: whose memory is noted meanwhile. Raises ComparisonDied."""
    while True:
        for other in at_work or [child]:
            other.note_memory()
        if with_news([child], _LOOK_S):
            break
    try:
        found = child.answer()
    except (EOFError, OSError):
        raise ComparisonDied(
            f"comparing engine {engine.name} with the reference tokenizer: {how_it_died(child, kills)}"
        ) from None
    if isinstance(found, Exception):
        raise found
    return found


@dataclass(frozen=True)
class Trial:
    """One engine against the reference on some texts."""

    engine: type[Engine]
    tokenizer: DefinedTokenizer
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
