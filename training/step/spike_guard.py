"""Steps that are not taken, or gone back from: whose loss or gradient stands far out of the steps before."""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conf.schema import Training

if TYPE_CHECKING:
    import torch

log = logging.getLogger("training")

IN_A_ROW = 10
"""Steps skipped one after another, after which a run has diverged and is not helped by skipping."""
_DEVIATION = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_LEAST = 0.01
"""Of the median, that the deviation is taken for at least: losses that hardly move are no measure."""


BACK_IN_A_ROW = 5
"""Times that a run goes back to one point, after which it has diverged from there whatever it reads."""
_HELP = "A smaller optimizer.lr, or a longer warm-up, helps"


class Diverged(Exception):
    """So many steps in a row were skipped or undone that there is none to go on from."""


class SpikeGuard:
    """Says of each step whether it is to be skipped; knows the last `spike_window` steps that were not.

    A step is skipped when its loss or its gradient's norm is not finite, or is more than `spike_threshold`
    robust deviations (1.4826 times the median absolute deviation) above the median of those steps; only once
    there are so many.
    """

    name = "skip"
    point: int | None = None

    def __init__(self, training: Training) -> None:
        self._threshold = training.spike_threshold
        self._window = training.spike_window
        self._seen: dict[str, deque[float]] = {
            name: deque(maxlen=self._window) for name in ("loss", "gradient norm")
        }
        self._in_a_row = 0
        self.skipped = 0
        self.refused_step: int | None = None

    def refuses(self, loss: torch.Tensor, grad_norm: torch.Tensor, step: int) -> bool:
        """Whether this step (from 1) is left out. On a GPU this waits for it.

        Raises:
            Diverged: so were IN_A_ROW before it.
        """
        values = {"loss": loss.item(), "gradient norm": grad_norm.item()}
        why = next((words for name in values if (words := self._why(name, values[name]))), None)
        if why is None:
            self._in_a_row = 0
            for name, value in values.items():
                self._seen[name].append(value)
            return False
        self.skipped += 1
        self.refused_step = step
        self._refuse(step, why)
        return True

    def _refuse(self, step: int, why: str) -> None:
        """What becomes of a step that stands out."""
        self._in_a_row += 1
        if self._in_a_row > IN_A_ROW:
            raise Diverged(
                f"{IN_A_ROW} steps in a row were skipped (training.on_spike={self.name}), step {step:,} "
                f"would be too: {why}. {_HELP}"
            )
        log.warning("step %s is skipped: %s", f"{step:,}", why)

    def _why(self, name: str, value: float) -> str | None:
        if not math.isfinite(value):
            return f"its {name} is {value}"
        seen = self._seen[name]
        if len(seen) < self._window:
            return None
        median = statistics.median(seen)
        away = statistics.median(abs(one - median) for one in seen)
        deviation = max(_DEVIATION * away, _LEAST * abs(median))
        if value <= median + self._threshold * deviation:
            return None
        return f"its {name} {value:.4g} is {(value - median) / deviation:.0f} deviations above {median:.4g}"

    def results(self) -> dict[str, int]:
        """For run.json."""
        return {"skipped_steps": self.skipped}

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values."""
        seen = {name: list(values) for name, values in self._seen.items()}
        return {"seen": seen, "in_a_row": self._in_a_row, "skipped": self.skipped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        for name, values in state["seen"].items():
            self._seen[name] = deque(values, maxlen=self._window)
        self._in_a_row, self.skipped = state["in_a_row"], state["skipped"]


class RollbackGuard(SpikeGuard):
    """Such a step asks to go back to the last point (`rollback`), and is skipped before the first.

    point: its step. rollbacks: how often the run went back. asked: why it is to, now. skipped: of all steps
    those that have moved nothing in the end.
    """

    name = "rollback"

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.rollbacks = 0
        self.asked: str | None = None
        self._to_this_point = 0

    def reach(self, step: int) -> None:
        """This step is the point from now on."""
        self.point, self._to_this_point = step, 0

    def _refuse(self, step: int, why: str) -> None:
        if self.point is None:
            super()._refuse(step, why)
            return
        if self._to_this_point >= BACK_IN_A_ROW:
            raise Diverged(
                f"{BACK_IN_A_ROW} times the run went back to step {self.point:,} "
                f"(training.on_spike=rollback) and came to no later point, step {step:,}: {why}. {_HELP}"
            )
        self.asked = why

    def go_back(self, at_point: Mapping[str, Any], step: int) -> None:
        """The weights are those of the point again, behind this step. at_point: the state there."""
        self._take(at_point)
        self.skipped = at_point["skipped"] + step - (self.point or 0)
        self.rollbacks += 1
        self._to_this_point += 1
        self.asked = None

    def results(self) -> dict[str, int]:
        return super().results() | {"rollbacks": self.rollbacks}

    def state(self) -> dict[str, Any]:
        back = {"point": self.point, "rollbacks": self.rollbacks, "to_this_point": self._to_this_point}
        return super().state() | back

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self.point, self.rollbacks = state["point"], state["rollbacks"]
        self._to_this_point = state["to_this_point"]


GUARDS: dict[str, type[SpikeGuard]] = {guard.name: guard for guard in (SpikeGuard, RollbackGuard)}


def guard_of(training: Training) -> SpikeGuard | None:
    """What the configuration asks for."""
    return GUARDS[training.on_spike](training) if training.on_spike in GUARDS else None
