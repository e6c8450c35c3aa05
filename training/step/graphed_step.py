"""The step of a run as CUDA graphs: recorded once, then replayed with a few launches.

A small model's step is hundreds of small operations, and a GPU waits for the host between them. A graph holds
them all. The first steps are taken eagerly (torch's warm-up), then two or three graphs are recorded: forward
and backward of the first micro-batch, the same of those that follow, and the clipped move of the weights.
Where `training.cuda_graph=auto`, steps of both kinds are timed, and the faster kind is kept.

Losses and weights are those of eager steps, bit for bit where the kernels are deterministic: they are the
same kernels on the same numbers. So it does not matter at which step of an attempt the graphs take over.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from conf import AUTO
from conf.between_keys.gpu_rules import graph_obstacle, refused_graph
from experiment_utils.errors import UserError
from training.attempt.run_files import read_run, update_run
from training.devices.device_batches import on_device
from training.devices.step_clock import marker_of
from training.step.train_step import StepResult

if TYPE_CHECKING:
    from training.devices.step_clock import Mark, Marker
    from training.run.loop import Run
    from training.step.train_step import Batch, Step

log = logging.getLogger("training")

WARM_UP = 3
"""Eager steps before anything is timed or recorded: torch's own number."""
TIMED = 5
"""Steps of each kind that are compared."""
SETTLED = WARM_UP + 2 * TIMED + 1
"""Steps after which `auto` has chosen."""
PAYS = 1.03
"""Times as fast as eager steps, below which graphs are left out: they keep their memory for good."""

Work = Callable[[], None]


class TakesSteps(Protocol):
    """An object that takes steps as `Step.take` does."""

    def take(self, batches: Iterator[Batch], lr: float, number: int = 0) -> StepResult: ...


class Graphs(Protocol):
    """Records what a device is given, without doing it, and gives it again at once."""

    def warming_up(self) -> AbstractContextManager[None]:
        """Around a step that is taken before anything is recorded."""

    def record(self, work: Work) -> Work:
        """Record the work; returns what replays it."""

    def free(self) -> None:
        """Give the memory of recordings that are gone back to the device."""


class CudaGraphs:
    """CUDA's graphs, which share one pool of memory and are to be replayed in the order of recording."""

    def __init__(self) -> None:
        import torch

        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def warming_up(self) -> Iterator[None]:
        """On the stream that records, as torch's notes on CUDA graphs have it."""
        import torch

        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def record(self, work: Work) -> Work:
        import torch

        graph = torch.cuda.CUDAGraph()
        # Other threads (of the loader, of a checkpoint) may use CUDA meanwhile. The outer context restores
        # the stream: torch's own does not if the recording fails.
        with (
            torch.cuda.stream(self._stream),
            torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"),
        ):
            work()
        return graph.replay

    def free(self) -> None:
        """The pool of graphs that are gone is no longer used: without this, torch keeps it next to the memory
        of eager steps, which run on another stream.
        """
        import torch

        torch.cuda.empty_cache()


class RecordedStep:
    """A step in graphs. Its inputs, gradients, learning rates and results have fixed places on the device.

    The gradients of the first micro-batch are written and not added: they exist only after the recording of
    that pass, which begins without any.
    """

    def __init__(self, step: Step, graphs: Graphs, batch: Batch) -> None:
        """Record the step. batch: a micro-batch on the device, like all that follow.

        Raises:
            RuntimeError: something in it cannot be recorded, or memory ran out.
        """
        import torch

        device = step.device.torch_device
        self._step = step
        self._batch = {name: tensor.clone() for name, tensor in batch.items()}
        self._loss = torch.zeros((), device=device)
        self._by_source = (
            torch.zeros((2, step.sources), dtype=torch.float64, device=device) if step.sources else None
        )
        self._results = self._loss
        step.optimizer.zero_grad(set_to_none=True)
        self._lrs = [torch.zeros((), device=device) for _ in step.optimizer.param_groups]
        for group, lr in zip(step.optimizer.param_groups, self._lrs, strict=True):
            group["lr"], group["capturable"] = lr, True
        try:
            self._first = graphs.record(self._begin_gradients)
            self._next = graphs.record(self._add_gradients) if step.accumulation > 1 else None
            self._move = graphs.record(self._clip_and_move)
        except BaseException:
            self.release()
            raise

    def take(self, batches: Iterator[Batch], lr: float, number: int = 0) -> StepResult:
        for count in range(self._step.accumulation):
            on_device(next(batches), self._step.device, self._batch)
            replay = self._next if count and self._next is not None else self._first
            replay()
        for group, on_its_place in zip(self._step.optimizer.param_groups, self._lrs, strict=True):
            on_its_place.fill_(lr * group["lr_factor"])
        self._move()
        loss, grad_norm, *norms = self._results.clone().split([1, 1, len(self._results) - 2])
        by_source = None if self._by_source is None else self._by_source.clone()
        of_each = norms[0] if len(norms[0]) else None
        return StepResult(loss.squeeze(0), grad_norm.squeeze(0), by_source, of_each)

    def release(self) -> None:
        """Leave the optimizer to eager steps, and give back the gradients."""
        for group in self._step.optimizer.param_groups:
            group["lr"], group["capturable"] = 0.0, False  # each step sets its lr
        self._step.optimizer.zero_grad(set_to_none=True)

    def _begin_gradients(self) -> None:
        self._loss.zero_()
        if self._by_source is not None:
            self._by_source.zero_()
        self._add_gradients()

    def _add_gradients(self) -> None:
        self._step.add_gradients(self._batch, self._step.accumulation, self._loss, self._by_source)

    def _clip_and_move(self) -> None:
        import torch

        grad_norm, norms = self._step.clip()
        scalars = torch.stack([self._loss, grad_norm])
        self._results = scalars if norms is None else torch.cat([scalars, norms])
        self._step.optimizer.step()


class GraphedStep:
    """Takes steps eagerly at first, then as graphs, unless these are slower or cannot be recorded."""

    def __init__(
        self,
        step: Step,
        graphs: Graphs,
        mark: Marker,
        *,
        is_settled: bool = False,
        settle: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Wrap a step.

        Args:
            mark: makes the marks that steps are timed by.
            is_settled: graphs are wanted in any case; nothing is timed.
            settle: is called once, with whether steps are graphs from here on.
        """
        self._step, self._graphs, self._mark = step, graphs, mark
        self._is_settled, self._settle = is_settled, settle
        self._recorded: RecordedStep | None = None
        self._taken = 0
        self._times: list[tuple[Mark, Mark]] = []
        self._eager_s = 0.0
        self._how = self._warm_up

    def take(self, batches: Iterator[Batch], lr: float, number: int = 0) -> StepResult:
        return self._how(batches, lr, number)

    def _warm_up(self, batches: Iterator[Batch], lr: float, number: int) -> StepResult:
        begun = self._mark()
        with self._graphs.warming_up():
            result = self._step.take(batches, lr, number)
        self._taken += 1
        if self._taken > WARM_UP:
            self._times.append((begun, self._mark()))
        if self._taken == WARM_UP + (0 if self._is_settled else TIMED):
            self._how = self._record
        return result

    def _record(self, batches: Iterator[Batch], lr: float, number: int) -> StepResult:
        """Record the step, then take it; eagerly if that fails."""
        self._eager_s = self._median_s()
        first = next(batches)
        try:
            self._recorded = RecordedStep(self._step, self._graphs, on_device(first, self._step.device))
        except RuntimeError as error:
            log.warning(
                "training.cuda_graph: the step cannot be recorded (%s). It is taken one operation at a time",
                str(error).strip().partition("\n")[0],
            )
        # Not in the block above: the error's frames hold what was recorded before it.
        self._how = self._replay
        if self._recorded is None:
            self._keep(False)
        elif self._is_settled:
            log.info("CUDA graph: steps are replayed")
            self._keep(True)
        return self._how(chain([first], batches), lr, number)

    def _replay(self, batches: Iterator[Batch], lr: float, number: int) -> StepResult:
        """Replay, and compare when enough steps were timed; the first replay is not counted."""
        assert self._recorded is not None
        begun = self._mark()
        result = self._recorded.take(batches, lr, number)
        self._times.append((begun, self._mark()))
        if len(self._times) > TIMED:
            del self._times[0]
            replayed_s = self._median_s()
            is_faster = self._eager_s >= PAYS * replayed_s
            log.info(
                "CUDA graph: %.2f ms a step, %.2f ms one operation at a time: %s",
                1e3 * replayed_s,
                1e3 * self._eager_s,
                "steps are replayed" if is_faster else "left out",
            )
            self._keep(is_faster)
        return result

    def give_up(self) -> bool:
        """Free the graphs, now and in later attempts; returns whether there were any."""
        are_there = self._recorded is not None
        if are_there:
            self._keep(False)
        return are_there

    def release(self) -> None:
        """Free the graphs and their memory; steps are eager from here on."""
        self._how = self._step.take  # no bound replay is left
        if self._recorded is not None:
            self._recorded.release()
            self._recorded = None
        self._graphs.free()

    def _keep(self, is_graphed: bool) -> None:
        if not is_graphed:
            self.release()
        self._times.clear()
        self._how = self._step.take if self._recorded is None else self._recorded.take
        self._settle(is_graphed)

    def _median_s(self) -> float:
        """Seconds of a step; waits for those that were timed."""
        if not self._times:
            return 0.0
        self._times[-1][1].wait()
        seconds = statistics.median(ended.since(begun) for begun, ended in self._times)
        self._times.clear()
        return seconds


def settled_graph(run: Run, kept: bool | str = AUTO) -> bool | str:
    """Return whether steps are graphs: true, false, or `auto` where it is still to be found out.

    Args:
        kept: what an earlier attempt found out.

    Raises:
        UserError: training.cuda_graph=true, and they cannot be.
    """
    asked = run.config.training.cuda_graph
    obstacle = graph_obstacle(run.config)
    if obstacle is None:
        if run.device.kind != "cuda":
            obstacle = f"a run on a {run.device.kind.upper()}"
        elif not run.ranks.is_alone:
            obstacle = f"{run.ranks.size} ranks: the host takes part in what they send"
        elif run.device.precision == "fp16":
            obstacle = "fp16: its loss scale changes"
    if asked is True and obstacle is not None:
        raise UserError(refused_graph(obstacle))
    if asked is False or obstacle is not None:
        if run.device.kind == "cuda":
            log.info("no CUDA graph: training.cuda_graph=%s", f"auto, {obstacle}" if obstacle else "false")
        return False
    if asked is True:
        return True
    return kept


def graphed(run: Run, step: Step) -> TakesSteps:
    """Return what takes the steps of a run: graphs, once they are known to be faster, or the step itself."""
    if run.cuda_graph is False:
        return step

    def settle(is_graphed: bool) -> None:
        run.cuda_graph = is_graphed  # holds for a smaller micro-batch of this attempt too
        auto = read_run(run.folder).get("auto", {})
        update_run(run.folder, auto={**auto, "cuda_graph": is_graphed})

    return GraphedStep(
        step, CudaGraphs(), marker_of(run.device), is_settled=run.cuda_graph is True, settle=settle
    )
