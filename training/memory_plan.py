"""Whether a run fits, the largest micro-batch that does, and what to type where it does not. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conf import AUTO, Config
from conf.budget import batch_of_rank
from conf.budget import micro_batch as micro_batch_of
from conf.schema import Training
from conf.sizes import size_name
from experiment_utils.errors import Problem, UserError
from memory import format_bytes
from memory.estimate.available import Room
from memory.estimate.estimate import Estimate, recommended_mem, told
from memory.estimate.setup_warnings import Setup, advise
from memory.estimate.step_reduction import WORTH, smaller_chunk, smaller_micro_batch
from memory.estimate.torch_build import torch_build
from models.loss_chunk import resolve_loss_chunk
from models.memory_loss import is_whole
from models.memory_sizes import StepSizes
from models.recomputed import recomputed_blocks
from models.shape import resolve_shape
from training.memory_parts import estimate_run, expected_device, step_sizes, writing_of
from training.optimizer_state import checkpoint_bytes

_TIGHT = 0.9
"""Of what is free: a run that needs more is told that it is close."""
_DEAREST = "training.activation_checkpointing="
"""A third more time a step."""
DOES_NOT_FIT = "It does not fit here, and would not be started"
"""So begins what a plan says of a run that `memory.refuse` would refuse."""
ALL_THE_SAME = "To start it all the same: memory.refuse=false"
"""So ends what is told of it to who has not yet typed that."""


@dataclass(frozen=True)
class MemoryPlan:
    """What a run needs, against what is to be had.

    largest_micro_batch: of the divisors of the step that fit with the margin, None where none does.
    margin: that one, in words, without which a smaller one may still start. problem: why it cannot fit, with
    the nearest that can. advice: set-ups known to hurt, a line each.
    checkpoint_writing: in the background, or in the foreground. loss_chunk: tokens whose logits exist
    at once. savings: by override, what it would need with it.
    """

    estimate: Estimate
    room: Room
    largest_micro_batch: int | None
    margin: str
    effective_batch: int
    problem: Problem | None
    advice: tuple[str, ...]
    checkpoint_writing: str
    loss_chunk: int
    savings: Mapping[str, Estimate]

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
        room, free = self.room, self.free_words()
        return f"needs {_of(self.estimate.host_bytes, room.limit_bytes, room.limit_at)}{free}"

    def free_words(self) -> str:
        """`, 21.8 GB free`; empty where that is not known."""
        free = self.room.free_bytes
        return "" if free is None else f", {format_bytes(free)} free"

    def rows(self) -> Iterator[tuple[str, str]]:
        """For the page of a plan: (label, text)."""
        room, estimate = self.room, self.estimate
        yield "memory", self.summary()
        yield "", ", ".join(f"{name} {format_bytes(n)}" for name, n in told(estimate.at_host_peak()).items())
        if estimate.warm_bytes < estimate.host_bytes:
            warm = format_bytes(estimate.warm_bytes)
            yield "", f"while torch.compile's cache is empty, as on a new node; {warm} where it is filled"
        if estimate.gpu_bytes:
            yield "", f"needs {_of(estimate.gpu_bytes, room.gpu_total_bytes, 'GPU')}"
            parts = told(estimate.at_gpu_peak())
            yield "", ", ".join(f"{name} {format_bytes(n)}" for name, n in parts.items())
        largest = self.largest_micro_batch
        if largest is None:
            yield "", f"no micro-batch fits with {self.margin}"
        else:
            whole = " (the whole step)" if largest == self.effective_batch else ""
            yield "", f"largest micro-batch that fits: {largest}{whole}"
        wanted = recommended_mem(estimate)
        amount = f"{wanted >> 30}G" if wanted % (1 << 30) == 0 else f"{wanted >> 20}M"
        yield "", f"of Slurm ask for --mem={amount}: what it needs, also when it goes on, with a margin"
        yield from (("advice", line) for line in self.advice)

    def check(self, *, refuse: bool) -> list[str]:
        """What to warn of.

        Raises:
            UserError: it cannot fit, and such runs are refused.
        """
        if self.problem is None:
            return list(self.advice)
        if refuse:
            raise UserError(dataclasses.replace(self.problem, what=f"{self.problem.what}. {ALL_THE_SAME}"))
        return [f"started all the same (memory.refuse=false), but {self.problem.what}", *self.advice]


def _of(needed: int, limit: int | None, where: str | None) -> str:
    if limit is None:
        return format_bytes(needed) + (" of the GPU's memory" if where == "GPU" else "")
    whose = {"host": "the host's ", "GPU": "the GPU's "}.get(where or "", "")
    at = f" at {where}" if not whose and where else ""
    return f"{format_bytes(needed)} of {whose}{format_bytes(limit)}{at} ({100 * needed / limit:.0f}%)"


class MemoryNeeds:
    """The needs of one resolved configuration, asked for at several micro-batches.

    data: facts of the plan, or None. kept: what `auto` became in the earlier attempts of the run. ranks:
    processes of the run, ranks_here of them on one node. together: runs of this shape in one process.
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
        self.config, self.room = config, room
        self._ranks, self._ranks_here = ranks, ranks_here
        self._together = together
        self._vocab_size, self._data = vocab_size, data
        positions = config.arch.max_positions or config.training.seq_len
        state = checkpoint_bytes(config, vocab_size, positions)
        self.checkpoint_writing = writing_of(config.training, kept or {}, room.free_bytes, state)
        self._kept = {**(kept or {}), "checkpoint_writing": self.checkpoint_writing}
        if "loss_chunk" not in self._kept:
            device, _ = expected_device(config.training, self._kept)
            self._kept["loss_chunk"] = resolve_loss_chunk(
                AUTO, vocab_size, device, room.gpu_share_bytes or room.gpu_total_bytes
            )
        self._asked: dict[tuple[Any, ...], Estimate] = {}

    def at(self, micro_batch: int, config: Config | None = None) -> Estimate:
        """The estimate at this micro-batch, of the configuration or of a variant of it."""
        config = self.config if config is None else config
        training, dataset = config.training, config.dataset
        again = str(training.activation_checkpointing)  # to a dict true and 1 are one
        key = (micro_batch, again, training.loss_chunk, dataset.reader)
        if key not in self._asked:
            self._asked[key] = self._estimate(config, micro_batch, self._kept)
            gpu = self.room.gpu_choice_bytes
            too_much = gpu is not None and self._asked[key].gpu_bytes * (1 + self.config.memory.margin) > gpu
            if too_much and training.cuda_graph == AUTO:  # the run leaves graphs out that have no room
                kept = {**self._kept, "cuda_graph": False}
                self._asked[key] = self._estimate(config, micro_batch, kept)
        return self._asked[key]

    def _estimate(self, config: Config, micro_batch: int, kept: Mapping[str, Any]) -> Estimate:
        return estimate_run(
            config,
            vocab_size=self._vocab_size,
            micro_batch=micro_batch,
            data=self._data,
            kept=kept,
            ranks=self._ranks,
            ranks_here=self._ranks_here,
            together=self._together,
            counts_rss=self.room.counts_rss,
        )

    def _step(self, micro_batch: int) -> StepSizes:
        return step_sizes(self.config, self._vocab_size, micro_batch, self._kept, self._ranks)

    def _sizes(self) -> list[int]:
        return divisors(self.config.training, self._ranks)

    def fits(self, estimate: Estimate, margin: float = 0.0) -> bool:
        """Whether host and GPU have room for it and a margin; what is not known does not refuse."""
        return self._is_within(estimate, margin, self.room.gpu_free_bytes)

    def _is_within(self, estimate: Estimate, margin: float, gpu_bytes: int | None) -> bool:
        free = self.room.free_bytes
        on_host = free is None or estimate.host_bytes * (1 + margin) <= free
        return on_host and (gpu_bytes is None or estimate.gpu_bytes * (1 + margin) <= gpu_bytes)

    def fits_limit(self, estimate: Estimate) -> bool:
        """The same were this machine's limit all for itself."""
        limit, gpu = self.room.limit_bytes, self.room.gpu_total_bytes
        return (limit is None or estimate.host_bytes <= limit) and (gpu is None or estimate.gpu_bytes <= gpu)

    def micro_batch(self, *, pinned: int | None = None, after_oom: bool = False) -> int:
        """What the configuration asks for; `auto`: the largest that is no slower and fits with the margin.

        pinned: what `auto` became before. It is kept, never exceeded, and lowered when the run died for
        memory, or can no longer fit at all: to one that takes less, which not every smaller one does (few
        tokens have their loss whole). Where nothing fits it is the one that takes least.
        """
        training = self.config.training
        if training.micro_batch != AUTO:
            return int(training.micro_batch)
        device, _ = expected_device(training, self._kept)
        largest = micro_batch_of(training, self._ranks, device)
        sizes = [size for size in self._sizes() if size <= largest]
        if pinned is not None:
            if not after_oom and pinned in self._sizes() and self.fits_limit(self.at(pinned)):
                return pinned
            less = [size for size in sizes if size < pinned and self._takes(size) < self._takes(pinned)]
            sizes = less or [pinned if pinned in sizes else sizes[-1]]
        return self.largest(sizes) or min(sizes, key=self._takes)

    def _takes(self, micro_batch: int) -> float:
        """The share of the host's limit, or of the GPU's if that is larger; bytes, where none is known."""
        found, room = self.at(micro_batch), self.room
        needs = (found.host_bytes, room.limit_bytes), (found.gpu_bytes, room.gpu_total_bytes)
        return max(
            (needed / limit for needed, limit in needs if limit), default=sum(need for need, _ in needs)
        )

    def largest(self, sizes: list[int], config: Config | None = None) -> int | None:
        """The first of these sizes, descending, that fits with the margin."""
        margin, gpu = self.config.memory.margin, self.room.gpu_choice_bytes
        return next((size for size in sizes if self._is_within(self.at(size, config), margin, gpu)), None)

    def plan(self, micro_batch: int) -> MemoryPlan:
        """All that is told of the run at this micro-batch."""
        estimate = self._traced(micro_batch) if self.config.memory.trace else self.at(micro_batch)
        sizes = self._sizes()
        savings = {} if self.config.memory.trace else dict(self._savings_told(estimate, micro_batch))
        return MemoryPlan(
            estimate=estimate,
            room=self.room,
            largest_micro_batch=self.largest(sizes),
            margin=_margin_words(self.config),
            effective_batch=sizes[0],
            problem=None if self.fits(estimate) else self._problem(estimate, micro_batch),
            advice=tuple(self._advice(estimate, micro_batch, savings)),
            checkpoint_writing=self.checkpoint_writing,
            loss_chunk=self._step(micro_batch).loss_chunk,
            savings=savings,
        )

    def _savings_told(self, estimate: Estimate, micro_batch: int) -> Iterator[tuple[str, Estimate]]:
        """What `explain` may advise when the run has died; the nearest that fits, where it does not."""
        yield from self._with_one_override(micro_batch)
        if not self.fits(estimate) and (nearest := self._nearest(micro_batch)):
            yield nearest

    def _with_one_override(self, micro_batch: int) -> Iterator[tuple[str, Estimate]]:
        config, training = self.config, self.config.training
        if micro_batch > 1:
            size = smaller_micro_batch(micro_batch)
            yield f"training.micro_batch={size}", self.at(size)
        step = self._step(micro_batch)
        chunk = smaller_chunk(min(step.loss_chunk, step.tokens))
        changes: dict[str, Config] = {}
        if self._has_plain_blocks():
            again = dataclasses.replace(training, activation_checkpointing=True)
            changes["training.activation_checkpointing=true"] = dataclasses.replace(config, training=again)
        if chunk is not None:
            fewer = dataclasses.replace(training, loss_chunk=chunk)
            changes[f"training.loss_chunk={chunk}"] = dataclasses.replace(config, training=fewer)
        for words, changed in changes.items():
            yield words, self.at(micro_batch, changed)

    def _traced(self, micro_batch: int) -> Estimate:
        from training.memory_trace import trace_run, with_trace

        step = self._step(micro_batch)
        found = trace_run(self.config, step, self._vocab_size)
        return with_trace(self.at(micro_batch), found, sees_loss=is_whole(step))

    def _problem(self, estimate: Estimate, micro_batch: int) -> Problem:
        room, raised, of_gpu = self.room, None, False
        if room.free_bytes is not None and estimate.host_bytes > room.free_bytes:
            needed, limit, used = estimate.host_bytes, room.limit_bytes or 0, room.used_bytes
            where = "of this machine" if room.limit_at == "host" else f"that {room.limit_at} allows"
            raised = room.raised and room.raised(estimate)
        else:
            of_gpu = True
            needed, limit, used = estimate.gpu_bytes, room.gpu_total_bytes or 0, room.gpu_used_bytes
            where = f"of {room.gpu_at}"
        held = f", of which others hold {format_bytes(used)}" if used > 0.01 * limit else ""
        nearest = self._nearest(micro_batch)
        if nearest:
            less = nearest[1].gpu_bytes if of_gpu else nearest[1].host_bytes
            remedy = f"The nearest that fits: {nearest[0]} ({format_bytes(less)})"
            remedy += f"; as it is it fits in {raised}" if raised else ""
        else:
            remedy = (
                f"Not even one window at a time with every saving fits with {_margin_words(self.config)}: "
                "take a smaller model=, a shorter training.seq_len, or more memory"
                f"{f': {raised}' if raised else ''}"
            )
        return Problem(
            "training.micro_batch",
            f"{size_name(self.config.model)} with {micro_batch} at once needs {format_bytes(needed)} of the "
            f"{format_bytes(limit)} {where}{held}. {remedy}",
            code="needs-more-memory",
        )

    def nearest(self, micro_batch: int) -> tuple[str, int] | None:
        """What to type for the least change that fits with the margin, and the bytes it then needs."""
        found = self._nearest(micro_batch)
        return None if found is None else (found[0], found[1].host_bytes)

    def _nearest(self, micro_batch: int) -> tuple[str, Estimate] | None:
        sizes = [size for size in self._sizes() if size <= micro_batch]
        for words, config in self._savings():
            size = self.largest(sizes, config)
            if size is not None:
                typed = [f"training.micro_batch={size}"] if size != micro_batch else []
                return " ".join([*typed, *words]), self.at(size, config)
        return None

    def _savings(self) -> Iterator[tuple[list[str], Config]]:
        """Ways to need less, the cheapest for the user first, each on top of those before."""
        config, words = self.config, list[str]()
        yield words, config
        training, dataset = config.training, config.dataset
        if training.loss_chunk != AUTO:
            config = dataclasses.replace(config, training=dataclasses.replace(training, loss_chunk=AUTO))
            words = [*words, "training.loss_chunk=auto"]
            yield words, config
        if dataset.reader == "memory" or (dataset.reader == "mmap" and self.room.counts_rss):
            config = dataclasses.replace(config, dataset=dataclasses.replace(dataset, reader=AUTO))
            words = [*words, "dataset.reader=auto"]
            yield words, config
        if self._has_plain_blocks():
            for blocks in self._more_blocks():
                again = dataclasses.replace(config.training, activation_checkpointing=blocks)
                config = dataclasses.replace(config, training=again)
                yield [*words, f"training.activation_checkpointing={str(blocks).lower()}"], config

    def _has_plain_blocks(self) -> bool:
        """Whether there are blocks that are not computed again."""
        layers = resolve_shape(self.config.model, self.config.arch).n_layers
        return recomputed_blocks(self.config.training.activation_checkpointing, layers) < layers

    def _more_blocks(self) -> Iterator[bool | int]:
        """Half of the blocks that are not computed again as well, then all."""
        layers = resolve_shape(self.config.model, self.config.arch).n_layers
        now = recomputed_blocks(self.config.training.activation_checkpointing, layers)
        if 0 < (half := (now + layers) // 2) < layers and half > now:
            yield half
        yield True

    def _less(self, estimate: Estimate, micro_batch: int, savings: dict[str, Estimate]) -> str:
        """What to type to need less: what costs least, of what saves a good part."""
        if not savings:  # of a trace
            half = f"training.micro_batch={smaller_micro_batch(micro_batch)}"
            return half if micro_batch > 1 else _DEAREST + "true"
        worth = [words for words, less in savings.items() if less.host_bytes <= WORTH * estimate.host_bytes]
        if worth:
            return min(worth, key=lambda words: (" " in words, words.startswith(_DEAREST)))
        raised = self.room.raised and self.room.raised(estimate)
        return f"more memory{f', {raised}' if raised else ''}, or a smaller model="

    def _advice(self, estimate: Estimate, micro_batch: int, savings: dict[str, Estimate]) -> Iterator[str]:
        dataset, data = self.config.dataset, self._data or {}
        is_mapped = dataset.reader == "mmap" and dataset.max_resident is None
        mapped = int(data.get("file_bytes") or 0) if is_mapped else 0
        setup = Setup(
            host_bytes=estimate.host_bytes,
            mapped_bytes=mapped,
            gpu=expected_device(self.config.training, self._kept or {})[0] == "cuda",
            smaller=self._less(estimate, micro_batch, savings),
        )
        yield from map(str, advise(setup, self.room))
        free = self.room.free_bytes
        if free is not None and _TIGHT * free < estimate.host_bytes <= free:
            yield (
                f"it needs {format_bytes(estimate.host_bytes)} of the {format_bytes(free)} that are free, "
                f"which is close: {setup.smaller}"
            )


def _margin_words(config: Config) -> str:
    return f"a margin of {config.memory.margin:.0%} (memory.margin)"


def divisors(training: Training, ranks: int = 1) -> list[int]:
    """Sizes a micro-batch may have, descending."""
    batch = batch_of_rank(training, ranks)
    return [size for size in range(batch, 0, -1) if batch % size == 0]
