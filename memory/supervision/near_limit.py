"""The black box: asks a run for its stacks when its memory is nearly out."""

from __future__ import annotations

import os
import time

from memory.record.stack_requests import (
    NEAR_LIMIT,
    STACKS_SIGNAL,
    StackRequests,
    has_handler,
    hidden_path,
    shown_path,
)
from memory.supervision.process_table import ProcessTable
from memory.supervision.sampler import Look

ASKS_FROM, READY_AGAIN_BELOW = 0.92, 0.85
"""Shares of the limit. U rises and falls with each step: between the two it does not ask again."""
MOST_TIMES, AT_LEAST_APART_S = 3, 30.0
_MOST_PROCESSES = 8
_SEEN_TWICE = 2
"""A process that has just been forked has its parent's handler until it executes another program."""


class NearLimit:
    """Asks at most a few times an attempt."""

    def __init__(self, folder: str, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._times = 0
        self._last_s = float("-inf")
        self._is_ready = True
        self._asking: StackRequests | None = None

    def look(self, look: Look, table: ProcessTable) -> None:
        """Ask if this sample is near the limit; called after each sample."""
        nearness = look.nearness
        if nearness is None:
            return
        if nearness < READY_AGAIN_BELOW:
            self._is_ready = True
        is_time = time.monotonic() - self._last_s >= AT_LEAST_APART_S
        if nearness >= ASKS_FROM and self._is_ready and is_time and self._times < MOST_TIMES:
            self._ask(look, table, nearness)

    def step(self) -> bool:
        """Collect answers between samples; returns whether some are still awaited."""
        if self._asking is not None and self._asking.step():
            self._asking = None
        return self._asking is not None

    def close(self) -> None:
        """Remove the file of answers: the run has ended."""
        try:
            os.unlink(hidden_path(self._folder, self._attempt))
        except OSError:
            return

    def _ask(self, look: Look, table: ProcessTable, nearness: float) -> None:
        sample = look.sample
        able = [
            one
            for one in look.processes
            if table.alive[one.pid].looks >= _SEEN_TWICE and has_handler(one.pid, STACKS_SIGNAL)
        ][:_MOST_PROCESSES]
        if not able:
            return
        self._is_ready, self._last_s = False, time.monotonic()
        self._times += 1
        hidden, shown = hidden_path(self._folder, self._attempt), shown_path(self._folder, self._attempt)
        if os.path.exists(hidden):
            os.rename(hidden, shown)  # open descriptors stay valid
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sample.time_s))
        of = f"{_mb(sample.unreclaimable_bytes)} of {_mb(sample.limit_bytes)} MB ({100 * nearness:.0f}%)"
        headings = [
            (
                one.pid,
                f"== {when}{NEAR_LIMIT}{of}: {one.pid} {one.name}, anon {_mb(one.anon_bytes)} MB ==",
            )
            for one in able
        ]
        self._asking = StackRequests(shown, headings)
        self._asking.step()


def _mb(amount: int | None) -> str:
    return "?" if amount is None else str(amount >> 20)
