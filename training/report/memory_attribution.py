"""`memory.attribute=true`: who holds the memory after the first step, at the peak, and at the end."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files

if TYPE_CHECKING:
    from memory import Stage

log = logging.getLogger("training")

FILE = "memory.attribution.json"
_HIGHER = 1.05
"""Unreclaimable memory that counts as a new peak, over that of the one before: looking takes a second."""


class Attributions:
    """Those of one attempt, in memory.attribution.json of the run's folder. Does nothing unless it is on."""

    def __init__(self, folder: Path, *, is_on: bool) -> None:
        self._folder, self._is_on = folder, is_on
        self._found: dict[str, dict[str, Any]] = {}
        self._highest_bytes = 0

    def is_due(self, when: str, measured: Stage) -> str | None:
        """Which one is to be taken after this stage: `first_step`, `peak` or none."""
        if not self._is_on or measured.after is None:
            return None
        now = measured.after.unreclaimable_bytes or 0
        if when != "first_step" and now <= _HIGHER * self._highest_bytes:
            return None
        self._highest_bytes = max(now, self._highest_bytes)
        return "first_step" if when == "first_step" else "peak"

    def begin(self) -> None:
        """Before the first step: on a GPU, have torch note where each allocation comes from."""
        from memory.attribute.allocators import record_cuda_history

        if self._is_on:
            record_cuda_history()

    @property
    def is_on(self) -> bool:
        return self._is_on

    def take(self, when: str, step: int) -> None:
        """Look, write, and tell in one line; of a GPU also memory.cuda-WHEN.pickle for torch's viewer."""
        from memory.attribute import attribute, brief
        from memory.attribute.allocators import save_cuda_snapshot

        found = attribute(when=when, step=step)
        self._found[when] = found.to_json()
        log.info("%s", brief(found))
        name = f"memory.cuda-{when}.pickle"
        if save_cuda_snapshot(self._folder / name):
            log.info("%s: to be dropped on https://docs.pytorch.org/memory_viz", name)
        try:
            atomic_files.write_json(
                self._folder / FILE, {"version": 1, "attributions": list(self._found.values())}
            )
        except OSError as error:
            log.warning("%s cannot be written (%s); the run goes on", FILE, error)
