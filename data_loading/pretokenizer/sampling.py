"""Samples for a forecast: what stands at places spread evenly over all inputs of a set.

The inputs are divided into stretches of equal length, and in each one place is drawn, by a generator
whose seed is fixed: the same inputs give the same samples, and a text that repeats itself cannot keep
step with them. Where a file can only be read from certain bytes on (the start of what is compressed,
the row groups of a table), the place is moved to the last of them before it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import cast

from data_loading.pretokenizer.cuts import CutRule, first_cut, last_cut
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.source import Part, Sample, Source

PLACES = 96
WINDOW_BYTES = 32 << 10
_START_BYTES = 16 << 20
"""Text that is read from a start, where there are so few that each has to tell of much."""
_EACH_START_BYTES = 256 << 10
"""The same where there are many: enough for whole documents, of which some are taken."""
_EDGE_BYTES = 64
"""How far from the end of a sample a safe cut is looked for: a word."""
_FEWEST = 8
"""Places in each kind of input, however little of it there is: fewer say nothing of how they differ."""


@dataclass
class Kind:
    """Inputs that are sampled alike. parts: their numbers. size_bytes: on disk, None where not known.

    samples: one a place. from_starts: of starts, not of all bytes; fewer than enough of them tell
    nothing about the rest.
    """

    parts: list[int] = field(default_factory=list)
    size_bytes: int | None = 0
    from_starts: bool = False
    samples: list[Sample] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """All of it was read."""
        return self.size_bytes is not None and self.sampled_bytes >= 0.999_999 * self.size_bytes

    @property
    def sampled_bytes(self) -> float:
        return sum(sample.size_bytes for sample in self.samples)

    @property
    def tells_spread(self) -> bool:
        """Its samples say how far they are from the whole."""
        return self.is_complete or (self.size_bytes is not None and len(self.samples) >= _FEWEST)


def parts_of(source: Source | Inputs) -> Sequence[Part]:
    """The inputs of one file each."""
    return cast("Sequence[Part]", source.parts if isinstance(source, Inputs) else [source])


def take_samples(parts: Sequence[Part], rule: CutRule) -> list[Kind]:
    """Samples of all parts, some megabytes at most.

    rule: of the tokenizer; a sample that is a piece of a document is cut where no id changes, so that
    the borders of samples make no tokens.

    Raises:
        UserError: a part cannot be read.
    """
    kinds: dict[object, Kind] = {}
    for number, part in enumerate(parts):
        from_starts = part.sample_starts is not None
        size = part.total_bytes
        kind = kinds.setdefault((type(part), from_starts, size is None), Kind(from_starts=from_starts))
        kind.parts.append(number)
        kind.size_bytes = None if size is None or kind.size_bytes is None else kind.size_bytes + size
    total = sum(kind.size_bytes or 0 for kind in kinds.values())
    for kind in kinds.values():
        share = (kind.size_bytes or 0) / total if total else 1.0
        places = max(_FEWEST, round(PLACES * share))
        taken = _from_starts(parts, kind, places) if kind.from_starts else _anywhere(parts, kind, places)
        kind.samples = [_merged([_between_cuts(sample, rule) for sample in samples]) for samples in taken]
    return list(kinds.values())


def _anywhere(parts: Sequence[Part], kind: Kind, places: int) -> Iterator[list[Sample]]:
    """One window a place, across the borders of files; all of it where that is not much more."""
    assert kind.size_bytes is not None
    sizes = [parts[number].total_bytes or 0 for number in kind.parts]
    if kind.size_bytes <= places * WINDOW_BYTES:
        for number, size in zip(kind.parts, sizes, strict=True):
            yield [parts[number].sample(0, size)]
        return
    ends = list(accumulate(sizes))
    windows = -(-kind.size_bytes // WINDOW_BYTES)
    for window in _drawn(windows, places):
        start = window * WINDOW_BYTES
        stop = min(start + WINDOW_BYTES, kind.size_bytes)
        pieces = []
        place = bisect_right(ends, start)
        while start < stop:
            before, end = ends[place] - sizes[place], min(stop, ends[place])
            if end > start:
                pieces.append(parts[kind.parts[place]].sample(start - before, end - start))
            start, place = end, place + 1
        yield pieces


def _from_starts(parts: Sequence[Part], kind: Kind, places: int) -> Iterator[list[Sample]]:
    chosen: dict[tuple[int, int], None] = {}
    if kind.size_bytes is None:
        chosen = {(number, 0): None for number in kind.parts[:places]}
    else:
        ends = list(accumulate(parts[number].total_bytes or 0 for number in kind.parts))
        for position in _drawn(kind.size_bytes, places):
            place = bisect_right(ends, position)
            number = kind.parts[place]
            size = parts[number].total_bytes or 0
            starts = parts[number].sample_starts or (0,)
            start = starts[max(0, bisect_right(starts, position - (ends[place] - size)) - 1)]
            chosen[number, start] = None
    length = places * WINDOW_BYTES // max(1, len(chosen))
    read = _START_BYTES if len(chosen) < _FEWEST else max(length, _EACH_START_BYTES)
    for number, start in chosen:
        yield list(_thinned(parts[number].sample(start, read), length))


def _drawn(count: int, places: int) -> list[int]:
    """A number below `count` out of each of `places` equal stretches."""
    draw = random.Random(0)
    if count <= places:
        return list(range(count))
    return [int((place + draw.random()) * count / places) for place in range(places)]


def _thinned(sample: Sample, length: int) -> Iterator[Sample]:
    """About `length` bytes in pieces spread evenly over a longer sample, for which they stand."""
    size = sum(map(len, sample.texts))
    if size <= length:
        yield sample
        return
    if len(sample.texts) > 1:
        of_each = max(1, -(-size // length))
        taken = sample.texts[::of_each]
        share = sum(map(len, taken)) / size
        yield Sample(taken, sample.size_bytes * share, sample.documents * len(taken) // len(sample.texts))
        return
    text = sample.texts[0]
    for window in _drawn(size // WINDOW_BYTES, max(1, length // WINDOW_BYTES)):
        start = window * WINDOW_BYTES
        part = text[start : start + WINDOW_BYTES].decode("utf-8", "ignore").encode()
        yield Sample([part], sample.size_bytes * len(part) / size, 0, start > 0, True)


def _merged(pieces: list[Sample]) -> Sample:
    return Sample(
        [text for piece in pieces for text in piece.texts],
        sum(piece.size_bytes for piece in pieces),
        sum(piece.documents for piece in pieces),
    )


def _between_cuts(sample: Sample, rule: CutRule) -> Sample:
    """Without the pieces of words at its ends, where documents go on there.

    Only as far as a word goes: text without safe cuts, Chinese say, must not be left out for it.
    """
    if not rule.exists or not sample.texts or not (sample.begins_inside or sample.ends_inside):
        return sample
    texts, size = list(sample.texts), sum(map(len, sample.texts))
    if sample.begins_inside:
        cut = first_cut(texts[0][:_EDGE_BYTES], rule, 0)
        texts[0] = texts[0] if cut is None else texts[0][cut:]
    if sample.ends_inside:
        end = len(texts[-1])
        cut = last_cut(texts[-1], rule, max(0, end - _EDGE_BYTES), end)
        texts[-1] = texts[-1] if cut is None else texts[-1][:cut]
    kept = sum(map(len, texts))
    return replace(sample, texts=texts, size_bytes=sample.size_bytes * kept / max(1, size))
