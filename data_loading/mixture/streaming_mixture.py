"""StreamingMixture: several datasets as one stream, in proportions that hold for each prefix of it."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from conf.proportions import Weight, integer_weights, parse_weights, shown
from data_loading.dataset.base import MapStyleDataset
from data_loading.dataset.epochs import shared_epoch
from data_loading.dataset.streaming_dataset import StreamingDataset
from data_loading.mixture.schedule import WHEN_DRY, Schedule, Stage
from data_loading.tokens.tokens import UNKNOWN
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

Positions = range | np.ndarray


class StreamingMixture(MapStyleDataset):
    """A dataset whose windows are those of several, each read without replacement in its own order.

    The source at a position is a function (`schedule`), so that ranks, batch sizes, workers and resume are
    those of any dataset (`Loader`). Batches also have `source`: int64 (batch,), the number of each row's
    source. The windows of a source come in the order in which it would be read alone.
    """

    def __init__(
        self,
        sources: Mapping[str, StreamingDataset] | Sequence[StreamingDataset],
        weights: Sequence[Weight],
        *,
        curriculum: Mapping[int, Sequence[Weight]] | None = None,
        when_dry: str = "stop",
    ) -> None:
        """Check the sources and lay out the schedule.

        Args:
            sources: Datasets of plain windows, of one length, by the names for messages.
            weights: Share of the windows of each: 0.7, or "1/3".
            curriculum: Other weights from a number of tokens on; these can be 0.
            when_dry: Policy for a source of which everything was read. stop: an epoch ends before it would be
                read twice. repeat: it is read again, in another order. rebalance: the weights of the others
                are scaled up, until all are dry.

        Raises:
            UserError: weights that do not sum to 1, are not as many as the sources, or not above 0; a source
                twice; sources of other windows or another vocabulary; an unknown policy.
        """
        named = sources if isinstance(sources, Mapping) else _named(sources)
        self.names, self.sources = list(named), list(named.values())
        if when_dry not in WHEN_DRY:
            raise UserError(
                f"when_dry {when_dry!r}: choices are {', '.join(WHEN_DRY)}", code="when-dry-unknown"
            )
        _check_sources(self.names, self.sources)
        self.seq_len, self._epoch = self.sources[0].seq_len, shared_epoch()
        given = {0: weights, **(curriculum or {})}
        if min(given) < 0 or (curriculum and 0 in curriculum):
            raise UserError(
                "curriculum: expected tokens above 0; `weights` hold before the first of them",
                code="curriculum-start-invalid",
            )
        self.stages = {
            tokens: self._shares(tokens, given[tokens], bool(curriculum)) for tokens in sorted(given)
        }
        never = [
            name for name, *all_of in zip(self.names, *self.stages.values(), strict=True) if not any(all_of)
        ]
        if never:
            raise UserError(
                f"{never[0]} has weight 0 from the start to the end: remove it", code="source-weight-zero"
            )
        self.schedule = schedule_of(list(map(len, self.sources)), self.stages, self.seq_len, when_dry)
        self.fingerprint = " | ".join(
            [
                "mixture",
                *(f"from {tokens} tokens {shown(shares)}" for tokens, shares in self.stages.items()),
                f"when dry {when_dry}",
                *(source.fingerprint for source in self.sources),
            ]
        )

    @property
    def step_windows(self) -> int | None:
        """None: kinds of batches that belong to a step are not mixed."""
        return None

    def __len__(self) -> int:
        """Return the windows in an epoch; if sources repeat, until each was read whole."""
        return self.schedule.length

    @property
    def reader(self) -> str:
        """The way in which tokens of each source are read, in a line."""
        lines = {source.reader: None for source in self.sources}
        return "; ".join(lines)

    @property
    def packing_efficiency(self) -> float | None:
        """Share of all tokens that is no padding, in one pass over each source; None if not packed."""
        full = [source.packing_efficiency for source in self.sources]
        known = [one for one in full if one is not None]
        counts = list(map(len, self.sources))
        return sum(map(operator.mul, known, counts)) / sum(counts) if known else None

    @property
    def ranks(self) -> str:
        """`distinct` or `shared`, as all sources are."""
        return self.sources[0].ranks

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        """Hint that the positions start to stop of an epoch are read soon."""
        for i, _, passes, places in self._parts(range(start, stop), epoch):
            self.sources[i].will_need(passes, places.start, places.stop)

    def join(self, batches: Sequence[Batch]) -> Batch:
        """Return one batch of several, in their order."""
        joined = self.sources[0].join([_without_source(batch) for batch in batches])
        return {**joined, "source": _cat([batch["source"] for batch in batches])}

    def _shares(self, tokens: int, given: Sequence[Weight], zero: bool) -> tuple[Fraction, ...]:
        where = f"curriculum at {tokens:,} tokens: " if tokens else ""
        if len(given) != len(self.sources):
            raise UserError(
                f"{where}{len(given)} weights for {len(self.sources)} sources ({', '.join(self.names)}): "
                "expected one for each",
                code="weights-count",
            )
        try:
            return parse_weights(given, zero=zero)
        except ValueError as error:
            raise UserError(f"{where}{error}", code="weights-invalid") from None

    def read_at(self, epoch: int, positions: Sequence[int] | np.ndarray) -> Batch:
        """Return the batch of these positions of an epoch, with `source`; those of a range cost least."""
        import torch

        wanted = _positions(positions)
        batches, rows = [], []
        source = np.empty(len(wanted), np.int64)
        for i, part, passes, places in self._parts(wanted, epoch):
            batches.append(self.sources[i].read_at(passes, places))
            rows.append(part)
            source[part] = i
        if not batches:
            batches = [self.sources[0].read(0, 0, 0)]
        batch = batches[0] if len(batches) == 1 else self.sources[0].interleave(batches, rows)
        return {**batch, "source": torch.from_numpy(source)}

    def _located(self, positions: Positions, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        length = len(self)
        wanted = np.arange(positions.start, positions.stop) if isinstance(positions, range) else positions
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < length:
            raise IndexError(f"windows {wanted.min()} to {wanted.max()} of {length}")
        return self.schedule.at(wanted + epoch * length)

    def _parts(self, positions: Positions, epoch: int) -> Iterator[tuple[int, np.ndarray, int, range]]:
        """Yield source, rows, pass over it and positions in that pass, for windows that follow each other."""
        sources, samples = self._located(positions, epoch)
        for i, source in enumerate(self.sources):
            rows, size = np.flatnonzero(sources == i), len(source)
            while len(rows):
                first = int(samples[rows[0]])
                passes, place = divmod(first, size)
                count = min(len(rows), size - place)
                if not isinstance(positions, range):
                    # Positions of a range have samples that follow each other; others may jump.
                    jumps = np.flatnonzero(samples[rows[:count]] != first + np.arange(count))
                    count = int(jumps[0]) if len(jumps) else count
                yield i, rows[:count], passes, range(place, place + count)
                rows = rows[count:]


def schedule_of(
    sizes: Sequence[int], shares: Mapping[int, Sequence[Fraction]], seq_len: int, when_dry: str
) -> Schedule:
    """Return the schedule of a mixture.

    Args:
        sizes: Windows of each source.
        shares: Weights by tokens; they hold from the first window that begins no earlier.
        seq_len: Inputs of a window.
        when_dry: As in `Schedule`.
    """
    by_window = {math.ceil(tokens / seq_len): weights for tokens, weights in shares.items()}
    stages = [Stage(start, integer_weights(weights)) for start, weights in by_window.items()]
    return Schedule(sizes, stages, when_dry)


def _named(sources: Sequence[StreamingDataset]) -> dict[str, StreamingDataset]:
    named = {str(source.data.train.name): source for source in sources}
    if len(named) == len(sources):
        return named
    return {f"{source.data.train.name} ({i})": source for i, source in enumerate(sources)}


def _check_sources(names: Sequence[str], sources: Sequence[StreamingDataset]) -> None:
    if not sources:
        raise UserError("a mixture without sources: expected at least one", code="mixture-empty")
    first = sources[0]
    _check_vocabulary(names, sources)
    seen: dict[tuple[str, str], str] = {}
    for name, source in zip(names, sources, strict=True):
        tokens = source.data.fingerprint, source.split
        if tokens in seen:
            raise UserError(
                f"{seen[tokens]} and {name} are the same tokens: give each source once, with the sum of its "
                "weights",
                code="mixture-source-twice",
            )
        seen[tokens] = name
        if source.kind in ("shifted", "streams"):
            raise UserError(
                f"{name}: a mixture takes windows=plain, not {source.kind}",
                code="mixture-windows-not-plain",
            )
        if source.form != first.form:
            raise UserError(
                f"the sources of a mixture have windows of one form: {names[0]} has {first.form}, {name} "
                f"{source.form}",
                code="mixture-forms-differ",
            )


def _check_vocabulary(names: Sequence[str], sources: Sequence[StreamingDataset]) -> None:
    """Compare tokenizers and numbers of ids; of a set of an unknown tokenizer, the latter alone."""
    known = [number for number, source in enumerate(sources) if source.data.tokenizer_name != UNKNOWN]
    first = known[0] if known else 0
    ours = sources[first].data
    for name, source in zip(names, sources, strict=True):
        theirs = source.data
        if ours.vocab_size == theirs.vocab_size and theirs.tokenizer_name in (ours.tokenizer_name, UNKNOWN):
            continue
        one, other = (f"{data.tokenizer_name} of {data.vocab_size:,} ids" for data in (ours, theirs))
        may_be_one = theirs.tokenizer_name == UNKNOWN and (not known or theirs.vocab_size < ours.vocab_size)
        ids = max(ours.vocab_size, theirs.vocab_size)
        raise UserError(
            f"the sources of a mixture share one vocabulary: {names[first]} has {one}, {name} has {other}. "
            + (
                "If the tokenizer is unknown, the vocabulary ends at the largest id; if it is the same, "
                f"give its size: StreamingDataset(open_tokens(PATH, vocab_size={ids}))"
                if may_be_one
                else "Tokenize one of them again with the tokenizer of the other"
            ),
            code="mixture-vocabularies-differ",
        )


def _positions(given: Sequence[int] | np.ndarray) -> Positions:
    return given if isinstance(given, range) and given.step == 1 else np.asarray(given, np.int64)


def _without_source(batch: Batch) -> Batch:
    return {name: values for name, values in batch.items() if name != "source"}


def _cat(parts: list[torch.Tensor]) -> torch.Tensor:
    import torch

    return torch.cat(parts)
