"""From scalars on the device to rows of metrics.csv and a line on the terminal."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiment_utils.quantities import format_count, format_duration, format_share
from memory import format_bytes
from memory.measure.cuda_allocator import read_gpu
from memory.measure.snapshot import snapshot
from training.devices.step_clock import StepTime
from training.plan.run_plan import Plan
from training.report.metrics import MetricsFile, Row, SourceRow, SourcesFile
from training.report.progress_line import MOVES, MOVING, is_moving
from training.step.gradients import where_not_finite
from training.step.train_step import StepResult

log = logging.getLogger("training")


MOVES_EVERY_S = 1.0
"""Between two lines on a terminal, whatever is logged."""


MOST_OVERFLOWS = 25
"""Steps in a row whose gradients overflow in fp16: a scale of 65,536 is 0.002 by then."""


class NonFinite(Exception):
    """A loss or gradient norm became infinite or no number; the run cannot go on from here."""


@dataclass(frozen=True)
class Scalars:
    """Scalars of a step on the host. by_source: as of `StepResult`, (2, sources)."""

    loss: float
    grad_norm: float
    by_source: list[list[float]] | None = None
    own: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the user's, by name."""

    @property
    def are_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass
class _Pending:
    step: int
    result: StepResult
    lr: float
    ended: StepTime
    scalars: Scalars | None = None

    @property
    def is_overflow(self) -> bool:
        return self.result.is_scaled and math.isfinite(self.known.loss) and not self.known.are_finite

    @property
    def is_broken(self) -> bool:
        return not (self.result.is_skipped or self.is_overflow or self.known.are_finite)

    @property
    def known(self) -> Scalars:
        assert self.scalars is not None
        return self.scalars


def read_scalars(results: Sequence[StepResult]) -> list[Scalars]:
    """Copy the scalars of these steps to the host in one transfer, which waits for the device once."""
    import torch

    if not results:
        return []
    device = results[0].loss.device
    scalars = torch.stack([one.to(device) for found in results for one in (found.loss, found.grad_norm)])
    sums = [found.by_source.flatten() for found in results if found.by_source is not None]
    metrics = [value.reshape(1) for found in results for value in found.own.values()]
    values = torch.cat([scalars.double(), *sums, *metrics]).cpu().tolist()
    sources = len(sums[0]) // 2 if sums else 0
    of_sources = values[len(scalars) :]
    of_metrics = iter(values[len(values) - len(metrics) :])
    found = []
    for number in range(len(results)):
        loss, norm = values[2 * number : 2 * number + 2]
        at = 2 * sources * number
        own = of_sources[at : at + sources], of_sources[at + sources : at + 2 * sources]
        measured = {name: next(of_metrics) for name in results[number].own}
        found.append(Scalars(loss, norm, [*own] if sources else None, measured))
    return found


class Progress:
    """Rows of the steps done, in order.

    Scalars stay on the device until `flush`, so that a GPU is not made to wait at every step.
    """

    def __init__(
        self,
        plan: Plan,
        metrics: MetricsFile,
        *,
        seconds: float,
        peak_flops: float | None,
        sources: SourcesFile | None = None,
        read: Callable[[int], Sequence[int]] | None = None,
        parameters: Sequence[str] = (),
    ) -> None:
        """seconds: of training already behind the first row. peak_flops: of the device in FLOP/s, or None.

        sources: of a mixture; then `read` tells the tokens of each of them that the first so many steps read.
        parameters: names of those that a step has the gradients' norms of.
        """
        self._plan = plan
        self._metrics = metrics
        self._sources, self._read = sources, read
        self._peak_flops = peak_flops
        self._parameters = parameters
        self._pending: list[_Pending] = []
        self._first_step: int | None = None
        self._first_seconds = self._last_seconds = seconds
        self._told_at = self._moved_at = -math.inf
        self._warm: Row | None = None
        self._overflows_in_a_row = 0
        self._val_loss: float | None = None
        self.last: Row | None = None

    def add(self, step: int, result: StepResult, lr: float, ended: StepTime) -> None:
        """Note a step. Its scalars and its time are read later."""
        if self._first_step is None:
            self._first_step = step - 1
        self._pending.append(_Pending(step, result, lr, ended))

    def flush(self, val_loss: float | None = None, measured: Mapping[str, float] | None = None) -> None:
        """Write the rows of all steps noted; the last one carries `val_loss` and the metrics measured then.

        Raises:
            NonFinite: at the first step whose loss or gradient norm is not finite; its row is written.
        """
        rows: list[Row] = []
        broken: _Pending | None = None
        of_sources: list[SourceRow] = []
        read_pending([self])
        for pending in self._pending:
            rows.append(self._row(pending))
            of_sources += self._source_rows(pending)
            self._overflows_in_a_row = self._overflows_in_a_row + 1 if pending.is_overflow else 0
            if pending.is_broken or self._overflows_in_a_row > MOST_OVERFLOWS:
                broken = pending
                break
        self._log_overflows()
        if not rows:
            return
        rows[-1] = replace(rows[-1], val_loss=val_loss)
        self._val_loss = self._val_loss if val_loss is None else val_loss
        own = [dict(pending.known.own) for pending in self._pending[: len(rows)]]
        own[-1] |= (measured or {}) if val_loss is not None else {}
        self._pending.clear()
        self._metrics.append(rows, own)
        if self._sources is not None:
            self._sources.append(of_sources)
        self.last = row = rows[-1]
        self._warm = self._warm or rows[0]
        if broken is not None:
            what = "gradient" if math.isfinite(row.train_loss) else "loss"
            raise NonFinite(
                f"the {what} is no longer finite: step {row.step:,}: loss {row.train_loss}, gradient norm "
                f"{row.grad_norm} at lr {row.lr:g}. {self._where(broken)}"
                "A smaller optimizer.lr, clipping (optimizer.grad_clip) to less, or a longer "
                "schedule.warmup_fraction, helps"
            )

    def _where(self, broken: _Pending) -> str:
        if not math.isfinite(broken.known.loss):
            return "It came out of the forward pass, before any gradient. "
        norms = broken.result.norms
        return where_not_finite(self._parameters, None if norms is None else norms.tolist())

    def check(self) -> None:
        """Raise NonFinite, as `flush`, when a step noted since the last flush is not finite."""
        read_pending([self])
        if any(pending.is_broken for pending in self._pending):
            self.flush()

    def _log_overflows(self) -> None:
        steps = [f"{pending.step:,}" for pending in self._pending if pending.is_overflow]
        if steps:
            shown = ", ".join(steps[:5]) + (f" and {len(steps) - 5} more" if len(steps) > 5 else "")
            log.info(
                "fp16: a gradient overflowed in step %s: the weights are not moved there, and the loss scale "
                "is halved",
                shown,
            )

    def tell(self, every_s: float) -> None:
        """Log a progress line when the last is older than `every_s`; on a terminal it moves in between."""
        now = time.monotonic()
        is_due = now - self._told_at >= every_s
        if not is_due and not (is_moving() and now - self._moved_at >= MOVES_EVERY_S):
            return
        self.flush()
        self._moved_at = now
        if is_due:
            self._told_at = now
        (log if is_due else MOVING).info("%s", self.line(), extra=MOVES)

    def line(self) -> str:
        """Where the run is: step, loss, lr, speed, memory, time to go."""
        row, budget = self.last, self._plan.budget
        if row is None or self._first_step is None or self._warm is None:
            return "no step yet"
        step, seconds = self._first_step, self._first_seconds
        if row.step > self._warm.step:  # the first step of an attempt takes longer than all others
            step, seconds = self._warm.step, self._warm.seconds
        per_step = (row.seconds - seconds) / max(1, row.step - step)
        speed = budget.batch_tokens / per_step if per_step > 0 else 0.0
        flops = speed * self._plan.flops_per_token
        parts = [
            f"step {row.step:>6,}/{budget.steps:,}",
            f"loss {row.train_loss:.4f}",
            *([] if self._val_loss is None else [f"val {self._val_loss:.4f}"]),
            f"lr {row.lr:.2e}",
            f"grad {row.grad_norm:.2f}",
            f"{format_count(round(speed))} tok/s",
            *([f"MFU {format_share(flops / self._peak_flops)}"] if self._peak_flops else []),
            *memory_words(),
        ]
        if row.step > self._warm.step or row.step == budget.steps:
            parts.append(f"{format_duration(per_step * (budget.steps - row.step))} to go")
        return " | ".join(parts)

    def _source_rows(self, pending: _Pending) -> Iterator[SourceRow]:
        if pending.known.by_source is None or self._read is None:
            return
        read, (sums, counts) = self._read(pending.step), pending.known.by_source
        for name, tokens, total, count in zip(self._plan.sources, read, sums, counts, strict=True):
            yield SourceRow(pending.step, name, tokens, total / count if count else None)

    def _row(self, pending: _Pending) -> Row:
        batch_tokens = self._plan.budget.batch_tokens
        tokens = pending.step * batch_tokens
        seconds = pending.ended.seconds()
        speed = batch_tokens / max(seconds - self._last_seconds, 1e-9)
        self._last_seconds = seconds
        peak = self._peak_flops
        return Row(
            step=pending.step,
            tokens=tokens,
            train_loss=pending.known.loss,
            val_loss=None,
            lr=pending.lr,
            grad_norm=pending.known.grad_norm,
            flops=self._plan.flops_per_token * tokens,
            seconds=round(seconds, 4),
            tokens_per_s=round(speed, 1),
            mfu=float(f"{speed * self._plan.flops_per_token / peak:.4g}") if peak else None,
        )


def read_pending(progresses: Sequence[Progress]) -> None:
    """Copy the scalars of all steps noted to the host in one transfer, of several runs together."""
    unread = [pending for one in progresses for pending in one._pending if pending.scalars is None]
    for pending, scalars in zip(unread, read_scalars([one.result for one in unread]), strict=True):
        pending.scalars = scalars


def memory_words() -> list[str]:
    """`memory 345 MB`: the run's memory; `GPU 1.2 GB`: what torch reserved."""
    held, gpu = snapshot().run_bytes, read_gpu()
    words = [] if held is None else [f"memory {format_bytes(held)}"]
    return [*words, *([] if gpu is None else [f"GPU {format_bytes(gpu.reserved_bytes)}"])]
