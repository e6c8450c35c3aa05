"""`micro_batch=auto` during a run: kept by each attempt, and reduced if memory runs out.

After a CUDA out of memory the attempt continues with a smaller one; after a kill the next attempt does.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conf import AUTO
from experiment_utils import atomic_files
from training.attempt.run_files import read_run, read_status, update_attempt, update_run
from training.devices.out_of_memory import came_out_of, is_device_oom, moves_weights, release

if TYPE_CHECKING:
    from training.plan.run_plan import Plan
    from training.run.loop import Run
    from training.run.prepared_run import Started
    from training.step.train_step import Batch

log = logging.getLogger("training")
Result = TypeVar("Result")

OUTCOMES = ("outcome.json", "attempts/{attempt}/outcome.json", "outcome.previous.json")
"""Places of a supervisor's outcome of the last attempt: after its end, after the next one began, and in run
folders of earlier versions."""

_OUT_OF_MEMORY = (
    "OutOfMemoryError", "MemoryError", "can't allocate memory", "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_ALLOC_FAILED",
)  # fmt: skip
"""Texts in the reason of a failed attempt: of Python, of torch's CPU allocator, of another rank's GPU. An
attempt whose own GPU is full ends as `oom`."""


def died_for_memory(folder: Path, run: Mapping[str, Any]) -> bool:
    """Whether the last attempt of a run ended because memory ran out, from its files and its supervisor's.

    run: content of run.json. The outcome of an earlier attempt does not count.
    """
    attempts = run.get("attempts") or []
    if not attempts or run.get("again"):
        return False
    status = read_status(folder)
    if status.get("state") == "oom":
        return True
    if status.get("state") == "failed" and any(word in str(status.get("reason")) for word in _OUT_OF_MEMORY):
        return True
    last = attempts[-1].get("attempt")
    return any(_was_killed(folder / name.format(attempt=last), last) for name in OUTCOMES)


def _was_killed(path: Path, attempt: Any) -> bool:
    try:
        outcome = atomic_files.read_object(path)
    except ValueError:
        return False
    if outcome is None or outcome.get("attempt") != attempt:
        return False
    return outcome.get("signal") in ("SIGKILL", "SIGBUS") and _kills(outcome) > 0


def _kills(outcome: Mapping[str, Any]) -> int:
    """Number of kernel OOM kills in the cgroup or in one above it during the run."""
    before, after = outcome.get("counters_before") or {}, outcome.get("counters_after") or {}
    counted = [(before.get("oom_kill"), after.get("oom_kill"))]
    for parent in outcome.get("parents") or ():
        counted.append((parent.get("oom_kill_before"), parent.get("oom_kill_after")))
    return max((b - a for a, b in counted if isinstance(a, int) and isinstance(b, int)), default=0)


def log_micro_batch(plan: Plan, kept: Mapping[str, Any], *, after_oom: bool) -> None:
    """Log that `auto` was reduced, or that it cannot be."""
    before, now = kept.get("micro_batch"), plan.budget.micro_batch
    if plan.config.training.micro_batch != AUTO:
        if after_oom and plan.config.training.micro_batch == before:
            log.warning(
                "the attempt before died for memory with the same training.micro_batch=%s; with "
                "training.micro_batch=auto it would be made smaller",
                now,
            )
        return
    if before is None or (now == before and not after_oom):
        return
    why = "the attempt before died for memory" if after_oom else "this machine has less memory"
    if now < before:
        log.warning(
            "%s: micro-batch %s instead of %s; losses can differ in their last bits", why, now, before
        )
    else:
        log.warning(
            "%s, and the micro-batch is %s already: try training.activation_checkpointing=true", why, now
        )


class SplitBatches:
    """Micro-batches of a loader, each in several parts after `split`.

    The loader itself is unchanged, so that its state at the end of a step equals that with smaller batches.
    """

    def __init__(self, batches: Iterator[Batch], steps_done: Callable[[], int]) -> None:
        self._batches, self._steps_done = batches, steps_done
        self._parts, self._begun = 1, -1
        self._read: list[Batch] = []
        self._waiting: deque[Batch] = deque()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._begun != self._steps_done():
            self._begun, self._read = self._steps_done(), []
        if not self._waiting:
            batch = next(self._batches)
            self._read.append(batch)
            self._waiting.extend(_parts_of(batch, self._parts))
        return self._waiting.popleft()

    def split(self, parts: int) -> None:
        """Divide each following micro-batch into `parts`; an unfinished step is read again."""
        self._parts *= parts
        is_unfinished = self._begun == self._steps_done()
        again = self._read if is_unfinished else []
        self._waiting = deque(part for batch in again for part in _parts_of(batch, self._parts))


def _parts_of(batch: Batch, parts: int) -> Iterator[Batch]:
    """Rows of a batch in order, in parts of equal size."""
    from data_loading.dataset.batch_kinds import NO_ROWS

    if parts == 1:
        yield batch
        return
    rows = len(batch["input_ids"]) // parts
    for first in range(0, parts * rows, rows):
        yield {name: of[first : first + rows] for name, of in batch.items() if name not in NO_ROWS}


def fitted(started: Started, work: Callable[[], Result], *, steps: bool = False) -> Result:
    """Do the work; after a CUDA out of memory, repeat it with a smaller micro-batch if `auto` allows it.

    Args:
        steps: the work trains up to a step, and continues with the step that failed. Other work, an
            evaluation, is repeated from its start.

    Raises:
        RuntimeError: the device is out of memory, and no smaller micro-batch helps or is allowed.
    """
    from training.run.loop import step_of
    from training.step.graphed_step import GraphedStep, graphed

    while True:
        try:
            return work()
        except Exception as error:
            if not is_device_oom(error):
                raise
            if not steps and isinstance(started.steps, GraphedStep) and started.steps.give_up():
                release(error)
                log.warning(
                    "CUDA out of memory in an evaluation: CUDA graphs are left out, which hold memory"
                )
                continue
            run = started.run
            now, size = run.plan.budget.micro_batch, _smaller_after(started, error, steps)
            where = f"in step {run.step + 1:,}" if steps else f"in an evaluation after step {run.step:,}"
            if size is None:
                error.add_note(f"{where} with micro-batch {now}")
                raise
            release(error)
        log.warning(
            "CUDA out of memory %s: micro-batch %s instead of %s from here on, effective batch %s as before",
            where,
            size,
            now,
            run.plan.budget.effective_batch,
        )
        take_smaller(run, size, since_step=run.step + 1)
        started.batches.split(now // size)
        if isinstance(started.steps, GraphedStep):
            started.steps.release()
        started.step = step_of(run, started.model, started.optimizer)
        started.steps = graphed(run, started.step)
        started.model.train()  # if an evaluation failed


def _smaller_after(started: Started, error: BaseException, steps: bool) -> int | None:
    """Micro-batch to continue with; None: the attempt ends.

    With several ranks each would have to repeat the step: there the next attempt is smaller. When the
    optimizer updates the weights, activations are freed already, and no smaller micro-batch helps.
    """
    run = started.run
    if run.config.training.micro_batch != AUTO or not run.ranks.is_alone:
        return None
    if steps and (not came_out_of(error, started.steps) or moves_weights(error)):
        return None
    return next_smaller(run)


def next_smaller(run: Run) -> int | None:
    """Next divisor of the micro-batch that needs less memory by the estimate; None: no divisor does."""
    from training.plan.memory_parts import estimate_run

    plan, kept = run.plan, read_run(run.folder).get("auto", {})

    def takes(size: int) -> int:
        found = estimate_run(
            run.config, vocab_size=plan.vocab_size, micro_batch=size, data=plan.data, kept=kept
        )
        return found.gpu_bytes or found.host_bytes

    now = plan.budget.micro_batch
    needed = takes(now)
    sizes = (size for size in range(now - 1, 0, -1) if now % size == 0)
    return next((size for size in sizes if takes(size) < needed), None)


def take_smaller(run: Run, size: int, since_step: int | None = None) -> None:
    """Set the micro-batch of the run's plan, with the same effective batch, and record it in run.json.

    Args:
        since_step: first step with it, if the attempt began with another one.
    """
    before = run.plan.budget
    accumulation = before.effective_batch // (size * run.ranks.size)
    budget = dataclasses.replace(before, micro_batch=size, accumulation=accumulation)
    run.plan = dataclasses.replace(run.plan, budget=budget)
    if not run.ranks.is_first:
        return
    found = read_run(run.folder)
    auto = {**found.get("auto", {}), "micro_batch": size}
    update_run(run.folder, auto=auto, micro_batch=size, accumulation=accumulation)
    if since_step is not None:
        change = {"since_step": since_step, "micro_batch": size, "before": before.micro_batch}
        changes = [*found["attempts"][-1].get("smaller_micro_batch", []), change]
        update_attempt(run.folder, smaller_micro_batch=changes)
