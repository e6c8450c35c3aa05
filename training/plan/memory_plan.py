"""Whether a run fits, the largest micro-batch that does, and what to type if it does not. No torch."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from conf import AUTO, Config
from conf.budget import batch_of_rank
from conf.budget import micro_batch as micro_batch_of
from conf.schema import Training
from conf.sizes import size_name
from experiment_utils.errors import Problem, UserError
from memory import format_bytes
from memory.estimate.available import Room
from memory.estimate.estimate import Estimate, largest_parts, recommended_mem
from memory.estimate.setup_warnings import Setup, advise
from memory.estimate.step_reduction import WORTH, smaller_chunk, smaller_micro_batch
from memory.estimate.torch_build import torch_build
from models.loss.loss_chunk import resolve_loss_chunk
from models.options.recomputed import recomputed_blocks
from models.options.shape import resolve_shape
from training.plan.memory_parts import estimate_run, expected_device, step_sizes, writing_of
from training.plan.optimizer_memory import checkpoint_bytes

_PAGE_COLUMNS = 72
"""Width of the text of a plan's page, behind a label of 8."""
_TIGHT = 0.9
"""Share of what is free above which a run is reported as close."""
_CHECKPOINTED = "training.activation_checkpointing=true"
"""The override that costs most: a third more time a step."""
DOES_NOT_FIT = "It does not fit here, and would not be started"
"""Beginning of a plan's message about a run that `memory.refuse` would refuse."""
ALL_THE_SAME = "To start it all the same: memory.refuse=false"
"""End of that message."""


@dataclass(frozen=True)
class MemoryPlan:
    """Needs of a run, compared with what is available."""

    estimate: Estimate
    room: Room
    largest_micro_batch: int | None
    """The largest divisor of the step that fits with the margin; None: none does."""
    margin: str
    """That margin as text; without it a smaller one may still start."""
    effective_batch: int
    problem: Problem | None
    """Why it cannot fit, with the nearest that can."""
    advice: tuple[str, ...]
    """Set-ups known to hurt, a line each."""
    checkpoint_writing: str
    """`background` or `foreground`."""
    loss_chunk: int
    """Tokens whose logits exist at once."""
    savings: Mapping[str, Estimate]
    """By override, the needs with it."""

    @property
    def fits(self) -> bool:
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.estimate.to_json(),
            **self.room.to_json(),
            "fits": self.fits,
            "largest_micro_batch": self.largest_micro_batch,
            "recommended_mem_bytes": recommended_mem(self.estimate),
            "torch_build": torch_build(),
            "advice": list(self.advice),
            "savings": {
                words: {"host_bytes": estimate.host_bytes, "gpu_bytes": estimate.gpu_bytes}
                for words, estimate in self.savings.items()
            },
        }

    def summary(self) -> str:
        """`needs 2.9 GB of the host's 23.5 GB (12%), 21.8 GB free`."""
        room = self.room
        return f"needs {_share(self.estimate.host_bytes, room.limit_bytes, room.limit_at)}{self.free_words()}"

    def free_words(self) -> str:
        """`, 21.8 GB free`; empty if it is not known."""
        free = self.room.free_bytes
        return "" if free is None else f", {format_bytes(free)} free"

    def rows(self) -> Iterator[tuple[str, str]]:
        """Rows of the page of a plan: (label, text), wrapped to its width."""
        for label, text in self._rows():
            lines = textwrap.wrap(text, _PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False)
            yield from ((label if line is lines[0] else "", line.replace("\xa0", " ")) for line in lines)

    def _rows(self) -> Iterator[tuple[str, str]]:
        estimate, largest = self.estimate, self.largest_micro_batch
        yield "memory", self.summary()
        yield "", _list(estimate.at_host_peak())
        if estimate.warm_bytes < estimate.host_bytes:
            warm = format_bytes(estimate.warm_bytes)
            yield "", f"while torch.compile's cache is empty, as on a new node; {warm} if it is filled"
        if estimate.gpu_bytes:
            yield "", f"needs {_share(estimate.gpu_bytes, self.room.gpu_total_bytes, 'GPU')}"
            yield "", _list(estimate.at_gpu_peak())
        if largest is None:
            yield "", f"no micro-batch fits with {self.margin}"
        else:
            whole = " (the whole step)" if largest == self.effective_batch else ""
            yield "", f"largest micro-batch that fits: {largest}{whole}"
        wanted = recommended_mem(estimate)
        amount = f"{wanted >> 30}G" if wanted % (1 << 30) == 0 else f"{wanted >> 20}M"
        yield "", f"request --mem={amount} from Slurm (covers resuming, with a margin)"
        yield from (("advice", line) for line in self.advice)

    def check(self, *, refuse: bool) -> list[str]:
        """Return the warnings.

        Raises:
            UserError: it cannot fit, and such runs are refused.
        """
        if self.problem is None:
            return list(self.advice)
        if refuse:
            raise UserError(dataclasses.replace(self.problem, what=f"{self.problem.what}. {ALL_THE_SAME}"))
        return [f"started all the same (memory.refuse=false), but {self.problem.what}", *self.advice]


def _list(parts: Mapping[str, int]) -> str:
    """Parts with their sizes, which are not divided when the line is wrapped."""
    found = (f"{name} {format_bytes(amount)}" for name, amount in largest_parts(parts).items())
    return ", ".join(part.replace(" ", "\xa0") for part in found)


def _share(needed: int, limit: int | None, where: str | None) -> str:
    if limit is None:
        return format_bytes(needed) + (" of the GPU's memory" if where == "GPU" else "")
    whose = {"host": "the host's ", "GPU": "the GPU's "}.get(where or "", "")
    at = f" at {where}" if not whose and where else ""
    return f"{format_bytes(needed)} of {whose}{format_bytes(limit)}{at} ({100 * needed / limit:.0f}%)"


class MemoryNeeds:
    """The needs of one resolved configuration at several micro-batches.

    Args:
        data: facts of the plan, or None.
        kept: what `auto` became in the earlier attempts of the run.
        ranks: processes of the run, ranks_here of them on one node.
        together: runs of this shape in one process.
    """

    def __init__(
        self,
        config: Config,
        room: Room,
        *,
        vocab_size: int,
        data: Mapping[str, Any] | None = None,
        kept: Mapping[str, Any] | None = None,
        ranks: int = 1,
        ranks_here: int = 1,
        together: int = 1,
    ) -> None:
        self.config, self.room, self._vocab_size, self._data = config, room, vocab_size, data
        self._ranks = ranks
        positions = config.arch.max_positions or config.training.seq_len
        state = checkpoint_bytes(config, vocab_size, positions)
        self.checkpoint_writing = writing_of(config.training, kept or {}, room.free_bytes, state)
        self._kept = {**(kept or {}), "checkpoint_writing": self.checkpoint_writing}
        self._device, _ = expected_device(config.training, self._kept)
        if "loss_chunk" not in self._kept:
            gpu = room.gpu_share_bytes or room.gpu_total_bytes
            self._kept["loss_chunk"] = resolve_loss_chunk(AUTO, vocab_size, self._device, gpu)
        self._sizes = divisors(config.training, ranks)
        self._estimate = partial(
            estimate_run,
            vocab_size=vocab_size,
            data=data,
            ranks=ranks,
            ranks_here=ranks_here,
            together=together,
        )
        self._known: dict[tuple[Any, ...], Estimate] = {}

    def at(self, micro_batch: int, config: Config | None = None) -> Estimate:
        """The estimate at this micro-batch, of the configuration or of a variant of it."""
        config = self.config if config is None else config
        training, dataset = config.training, config.dataset
        again = str(training.activation_checkpointing)  # as a key of a dict true and 1 are equal
        key = (micro_batch, again, training.loss_chunk, dataset.reader)
        if key not in self._known:
            self._known[key] = self._estimate(config, micro_batch=micro_batch, kept=self._kept)
            gpu = self.room.gpu_choice_bytes
            too_much = gpu is not None and self._known[key].gpu_bytes * (1 + self.config.memory.margin) > gpu
            if too_much and training.cuda_graph == AUTO:  # the run leaves graphs out that have no room
                kept = {**self._kept, "cuda_graph": False}
                self._known[key] = self._estimate(config, micro_batch=micro_batch, kept=kept)
        return self._known[key]

    def fits(self, estimate: Estimate, margin: float = 0.0) -> bool:
        """Whether host and GPU have room for it and a margin. Unknown memory never refuses."""
        return self._is_within(estimate, margin, self.room.gpu_free_bytes)

    def _is_within(self, estimate: Estimate, margin: float, gpu_bytes: int | None) -> bool:
        free = self.room.free_bytes
        on_host = free is None or estimate.host_bytes * (1 + margin) <= free
        return on_host and (gpu_bytes is None or estimate.gpu_bytes * (1 + margin) <= gpu_bytes)

    def micro_batch(self, *, pinned: int | None = None, after_oom: bool = False) -> int:
        """The configured micro-batch; for `auto` the largest that is no slower and fits with the margin.

        Args:
            pinned: what `auto` became before. It is kept, never exceeded, and lowered when the run died for
                memory or can no longer fit at all: to one that takes less, which not every smaller one does
                (few tokens have their loss whole). If nothing fits it is the one that takes least.
        """
        training = self.config.training
        if training.micro_batch != AUTO:
            return int(training.micro_batch)
        largest = micro_batch_of(training, self._ranks, self._device)
        sizes = [size for size in self._sizes if size <= largest]
        if pinned is not None:
            if not after_oom and pinned in self._sizes and self._fits_limit(self.at(pinned)):
                return pinned
            less = [size for size in sizes if size < pinned and self._takes(size) < self._takes(pinned)]
            sizes = less or [pinned if pinned in sizes else sizes[-1]]
        return self.largest(sizes) or min(sizes, key=self._takes)

    def _fits_limit(self, estimate: Estimate) -> bool:
        """Whether it fits if no other process holds memory here."""
        limit, gpu = self.room.limit_bytes, self.room.gpu_total_bytes
        return (limit is None or estimate.host_bytes <= limit) and (gpu is None or estimate.gpu_bytes <= gpu)

    def _takes(self, micro_batch: int) -> float:
        """The share of the host's limit, or of the GPU's if that is larger; bytes if none is known."""
        found, room = self.at(micro_batch), self.room
        needs = (found.host_bytes, room.limit_bytes), (found.gpu_bytes, room.gpu_total_bytes)
        return max(
            (needed / limit for needed, limit in needs if limit), default=sum(need for need, _ in needs)
        )

    def largest(self, sizes: Sequence[int], config: Config | None = None) -> int | None:
        """The first of these sizes, descending, that fits with the margin."""
        margin, gpu = self.config.memory.margin, self.room.gpu_choice_bytes
        return next((size for size in sizes if self._is_within(self.at(size, config), margin, gpu)), None)

    def plan(self, micro_batch: int) -> MemoryPlan:
        """Compare the needs at this micro-batch with the room."""
        estimate = self.at(micro_batch)
        step = step_sizes(self.config, self._vocab_size, micro_batch, self._kept, self._ranks)
        savings = dict(self._single_savings(micro_batch, min(step.loss_chunk, step.tokens)))
        problem = None
        if not self.fits(estimate):
            problem = self._problem(estimate, micro_batch)
            if nearest := self.nearest(micro_batch):
                savings[nearest[0]] = nearest[1]
        return MemoryPlan(
            estimate=estimate,
            room=self.room,
            largest_micro_batch=self.largest(self._sizes),
            margin=_margin_words(self.config),
            effective_batch=self._sizes[0],
            problem=problem,
            advice=tuple(self._advice(estimate, savings)),
            checkpoint_writing=self.checkpoint_writing,
            loss_chunk=step.loss_chunk,
            savings=savings,
        )

    def _single_savings(self, micro_batch: int, chunk_tokens: int) -> Iterator[tuple[str, Estimate]]:
        """Needs with one override each; `explain` advises them when the run has died."""
        if micro_batch > 1:
            size = smaller_micro_batch(micro_batch)
            yield f"training.micro_batch={size}", self.at(size)
        if self._has_plain_blocks():
            changed = _with(self.config, training={"activation_checkpointing": True})
            yield _CHECKPOINTED, self.at(micro_batch, changed)
        chunk = smaller_chunk(chunk_tokens)
        if chunk is not None:
            changed = _with(self.config, training={"loss_chunk": chunk})
            yield f"training.loss_chunk={chunk}", self.at(micro_batch, changed)

    def nearest(self, micro_batch: int) -> tuple[str, Estimate] | None:
        """Override for the least change that fits with the margin, and the needs with it."""
        sizes = [size for size in self._sizes if size <= micro_batch]
        for words, config in self._cumulative_savings():
            size = self.largest(sizes, config)
            if size is not None:
                typed = [f"training.micro_batch={size}"] if size != micro_batch else []
                return " ".join([*typed, *words]), self.at(size, config)
        return None

    def _cumulative_savings(self) -> Iterator[tuple[list[str], Config]]:
        """Overrides that need less, the cheapest for the user first, each added to those before."""
        config, words = self.config, list[str]()
        yield words, config
        if config.training.loss_chunk != AUTO:
            config, words = _with(config, training={"loss_chunk": AUTO}), [*words, "training.loss_chunk=auto"]
            yield words, config
        if config.dataset.reader == "memory":
            config, words = _with(config, dataset={"reader": AUTO}), [*words, "dataset.reader=auto"]
            yield words, config
        if self._has_plain_blocks():
            yield [*words, _CHECKPOINTED], _with(config, training={"activation_checkpointing": True})

    def _has_plain_blocks(self) -> bool:
        """Whether there are blocks that are not computed again."""
        layers = resolve_shape(self.config.model, self.config.arch).n_layers
        return recomputed_blocks(self.config.training.activation_checkpointing, layers) < layers

    def _problem(self, estimate: Estimate, micro_batch: int) -> Problem:
        room, raised, margin = self.room, None, _margin_words(self.config)
        on_host = room.free_bytes is not None and estimate.host_bytes > room.free_bytes
        if on_host:
            needed, limit, used = estimate.host_bytes, room.limit_bytes or 0, room.used_bytes
            where = "of this machine" if room.limit_at == "host" else f"that {room.limit_at} allows"
            raised = room.raised and room.raised(estimate)
        else:
            needed, limit, used = estimate.gpu_bytes, room.gpu_total_bytes or 0, room.gpu_used_bytes
            where = f"of {room.gpu_at}"
        held = f", of which others hold {format_bytes(used)}" if used > 0.01 * limit else ""
        if nearest := self.nearest(micro_batch):
            less = nearest[1].host_bytes if on_host else nearest[1].gpu_bytes
            remedy = f"The nearest that fits: {nearest[0]} ({format_bytes(less)})"
            remedy += f"; as it is it fits in {raised}" if raised else ""
        else:
            remedy = f"Not even one window at a time with every saving fits with {margin}: take a smaller "
            remedy += f"model=, a shorter training.seq_len, or more memory{f': {raised}' if raised else ''}"
        return Problem(
            "training.micro_batch",
            f"{size_name(self.config.model)} with {micro_batch} at once needs {format_bytes(needed)} of the "
            f"{format_bytes(limit)} {where}{held}. {remedy}",
            code="needs-more-memory",
        )

    def _advice(self, estimate: Estimate, savings: Mapping[str, Estimate]) -> Iterator[str]:
        dataset, room, needed = self.config.dataset, self.room, estimate.host_bytes
        is_mapped = dataset.reader == "mmap" and dataset.max_resident is None
        mapped = int((self._data or {}).get("file_bytes") or 0) if is_mapped else 0
        worth = [words for words, less in savings.items() if less.host_bytes <= WORTH * needed]
        raised = room.raised and room.raised(estimate)
        more = f"more memory{f', {raised}' if raised else ''}, or a smaller model="
        # The cheapest override of those that save a good part.
        smaller = min(worth, key=lambda words: (" " in words, words == _CHECKPOINTED), default=more)
        yield from map(str, advise(Setup(needed, mapped, self._device == "cuda", smaller), room))
        free = room.free_bytes
        if free is not None and _TIGHT * free < needed <= free:
            share = f"{format_bytes(needed)} of the {format_bytes(free)} that are free"
            yield f"it needs {share}, which is close: {smaller}"


def _with(config: Config, **groups: dict[str, Any]) -> Config:
    """The configuration with these keys of its groups changed."""
    changed = {name: dataclasses.replace(getattr(config, name), **keys) for name, keys in groups.items()}
    return dataclasses.replace(config, **changed)


def _margin_words(config: Config) -> str:
    return f"a margin of {config.memory.margin:.0%} (memory.margin)"


def divisors(training: Training, ranks: int = 1) -> list[int]:
    """Allowed sizes of a micro-batch, descending."""
    batch = batch_of_rank(training, ranks)
    return [size for size in range(batch, 0, -1) if batch % size == 0]
