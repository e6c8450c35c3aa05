"""Number of runs to train at a time, measured by a few steps; it can be one.

Several at a time are faster if a step of one run is many small operations: few tokens, a small vocabulary, a
GPU. If it is few large ones, runs one after another take the same time or less, since their numbers stay in
caches.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from conf import AUTO, Config
from conf.composing.check import to_config
from training.attempt.run_files import read_config, read_run
from training.devices.out_of_memory import is_device_oom, release
from training.devices.step_clock import marker_of
from training.ensemble.allocator import keep_freed_memory
from training.ensemble.graphed import GraphedPasses, graphs_for
from training.plan.run_plan import make_plan, max_positions
from training.step.graphed_step import WARM_UP

if TYPE_CHECKING:
    import torch

    from models import LanguageModel
    from training.devices.device import Device
    from training.plan.run_plan import Plan
    from training.step.graphed_step import Graphs
    from training.step.train_step import Batch

log = logging.getLogger("training")

PAYS = 1.05
"""Least speedup over one after another for which several are trained at a time."""
ROUNDS = 5
LONGEST_S = 20.0
"""Longest probe without its first steps: slow steps are measured in fewer rounds."""


@dataclass(frozen=True)
class GroupSize:
    """Number of runs to train at a time."""

    together: int
    """1: one after another."""
    speedups: Mapping[int, float]
    """Size that was tried -> speedup over one after another."""

    def words(self, members: int) -> str:
        """One line for log and plan."""
        tried = ", ".join(f"{size} at a time {ratio:.2f}x" for size, ratio in self.speedups.items())
        if self.together == 1:
            return f"ensemble of {members} does not pay here: one after another" + (
                f" ({tried} as fast)" if tried else ""
            )
        how = "all at a time" if self.together >= members else f"{self.together} at a time"
        return f"ensemble of {members}, {how}" + (f" ({tried} as fast as one after another)" if tried else "")


def settle_together(folders: Sequence[Path], members: int) -> int:
    """Number of runs to train at a time; 1: one after another.

    It is that of the config, otherwise that of an earlier attempt, since losses are equal bit for bit only in
    a group of the same size, otherwise the result of a probe.

    Raises:
        UserError: the runs cannot be planned here.
    """
    config = to_config(read_config(folders[0]))
    if config.ensemble.together != AUTO:
        return min(int(config.ensemble.together), members)
    for folder in folders:
        kept = (read_run(folder).get("ensemble") or {}).get("together")
        if isinstance(kept, int):
            return kept
    configs = [to_config(read_config(folder)) for folder in folders]
    choice = probe(config, len(folders), len({repr(each.optimizer) for each in configs}))
    log.info("%s", choice.words(len(folders)))
    return choice.together


def probe(config: Config, members: int, settings: int = 1) -> GroupSize:
    """Take a few steps of one run and of several together, on random tokens, and return the fastest size.

    Args:
        settings: number of different optimizer settings of the members.

    Raises:
        UserError: the runs cannot be planned here.
    """
    import torch

    from training.devices.device import resolve_device

    device = resolve_device(config.training, {}, is_ensemble=True)  # before the plan asks for its memory
    threads = torch.get_num_threads()
    device.take()  # before the first product: cuBLAS reads once how deterministic it is to be
    plan = make_plan(config, tokenize=False)
    rng = torch.get_rng_state()
    keep_freed_memory()
    try:
        sizes = [size for size in _sizes(members) if _fits(config, size)]
        steps = dict(_that_fit(plan, device, (1, *sizes), settings))
        return choose(_measured(steps, device), members)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(rng)


def choose(rounds: Mapping[int, Sequence[float]], members: int) -> GroupSize:
    """Choose a size whose median speedup is at least `PAYS` and that is slower in hardly a round.

    The second condition is against noise: the best of several sizes looks faster than it is. A smaller last
    group counts too.

    Args:
        rounds: size -> seconds of a step in each round.
    """
    speedups, paying = {}, {}
    for size, lasted_s in rounds.items():
        if size == 1:
            continue
        whole, rest = divmod(members, size)
        ratios = sorted(
            members * alone / (whole * together + rest * min(alone, together))
            for alone, together in zip(rounds[1], lasted_s, strict=True)
        )
        speedups[size] = statistics.median(ratios)
        if speedups[size] >= PAYS and ratios[len(ratios) // ROUNDS] >= 1:
            paying[size] = speedups[size]
    return GroupSize(max(paying, key=lambda size: paying[size], default=1), speedups)


def _sizes(members: int) -> list[int]:
    """Powers of two, and the number of members."""
    return sorted({size for size in (2, 4, 8, 16, 32, 64) if size < members} | {members})


def _fits(config: Config, size: int) -> bool:
    return make_plan(config, tokenize=False, together=size).memory.fits


def _that_fit(
    plan: Plan, device: Device, sizes: Sequence[int], settings: int
) -> Iterator[tuple[int, Callable[[], None]]]:
    """(size, its step, taken once already) for ascending sizes, up to the last that fits on the GPU."""
    for size in sizes:
        try:
            step = _step_of(plan, device, size, min(size, settings))
            step()
        except RuntimeError as error:
            if size == 1 or not is_device_oom(error):
                raise
            release(error)
            log.info("%s runs at a time do not fit in the GPU's memory", size)
            return
        yield size, step


def _step_of(plan: Plan, device: Device, size: int, settings: int) -> Callable[[], None]:
    """Step of `size` runs together, whose optimizers have `settings` different settings."""
    import torch

    from models import build_model
    from training.optimizers import build_optimizer

    config, training = plan.config, plan.config.training
    models = []
    for _ in range(size):
        positions = max_positions(config.arch, training.seq_len)
        model = build_model(config.model, config.arch, plan.vocab_size, positions)
        models.append(model.to(device.torch_device))
        models[-1].activation_checkpointing = training.activation_checkpointing
    optimizers = [build_optimizer(model, config.optimizer, device.kind) for model in models]
    rows = size * plan.budget.micro_batch
    ids = torch.randint(plan.vocab_size, (rows, training.seq_len), device=device.torch_device)
    chunk = plan.memory.loss_chunk
    if size == 1:
        return _step_alone(config, models[0], optimizers[0], ids, chunk, device)
    return _step_together(models, optimizers, settings, ids, chunk, device, graphs_for(config, device))


def _step_alone(
    config: Config,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    ids: torch.Tensor,
    chunk: int,
    device: Device,
) -> Callable[[], None]:
    """Step of a run alone, in graphs if these are faster."""
    from training.step import graphed_step
    from training.step.train_step import Step

    step_of_run = Step(model, optimizer, device, accumulation=1, loss_chunk=chunk, grad_clip=1.0)
    steps: graphed_step.TakesSteps = step_of_run
    batches, lr = repeat({"input_ids": ids, "labels": ids}), config.optimizer.lr
    graphs, is_settled = graphs_for(config, device), config.training.cuda_graph is True
    if graphs is not None:
        steps = graphed_step.GraphedStep(step_of_run, graphs, marker_of(device), is_settled=is_settled)
        for _ in range(graphed_step.SETTLED):
            steps.take(batches, lr)

    def step() -> None:
        steps.take(batches, lr)

    return step


def _step_together(
    models: Sequence[LanguageModel],
    optimizers: Sequence[torch.optim.Optimizer],
    settings: int,
    ids: torch.Tensor,
    chunk: int,
    device: Device,
    graphs: Graphs | None,
) -> Callable[[], None]:
    import torch

    from models.stacked import StackedModel
    from training.ensemble.update import StackedOptimizer, clip_each

    stack = StackedModel(models)
    optimizer = StackedOptimizer(optimizers, stack)
    limits = torch.ones(len(models), device=device.torch_device)
    lrs = {number: float(number * settings // len(models)) for number in range(len(models))}

    def add_gradients(batch: Batch) -> None:
        with device.autocast():
            losses = stack(batch["input_ids"], batch["labels"], None, chunk)
        losses.sum().backward()

    batch, passes = {"input_ids": ids, "labels": ids}, GraphedPasses(device, graphs)

    def step() -> None:
        stack.begin_step([0] * len(models))
        passes.take(add_gradients, batch)
        clip_each(stack.gradients, limits)
        optimizer.step(lrs)

    for _ in range(WARM_UP + 1 if graphs is not None else 0):  # until it is a graph
        step()
    return step


def _measured(steps: Mapping[int, Callable[[], None]], device: Device) -> dict[int, list[float]]:
    """Seconds of a step of each size, by round, without the first step."""
    seconds: dict[int, list[float]] = {size: [] for size in steps}
    lasts_s = 0.0
    for step in steps.values():
        lasts_s += _timed(step, device)
    for _ in range(max(1, min(ROUNDS, int(LONGEST_S / max(lasts_s, 1e-9))))):
        for size, step in steps.items():
            seconds[size].append(_timed(step, device))
    return seconds


def _timed(step: Callable[[], None], device: Device) -> float:
    device.synchronize()
    started = time.perf_counter()
    step()
    device.synchronize()
    return time.perf_counter() - started
