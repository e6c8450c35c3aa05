"""What several runs of one shape in one process change in the memory of a run. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memory.estimate.estimate import RESTORE, Part

_OF_THE_PROCESS = ("page tables", "tokens in memory")
_ONE_BY_ONE = {"evaluate", "checkpoint", RESTORE}
"""Phases that the runs go through one after another, or in which all together need less than in a step."""


def of_members(parts: Iterable[Part], members: int) -> list[Part]:
    """The parts of one run as those of so many: all is there of each, but for what they hold in turn."""
    return [
        part
        if part.in_turn or part.name in _OF_THE_PROCESS or set(part.when) <= _ONE_BY_ONE
        else replace(
            part,
            host_bytes=members * part.host_bytes,
            gpu_bytes=members * part.gpu_bytes,
            heap_bytes=members * part.heap_bytes,
            churned_bytes=members * part.churned_bytes,
            displaced_bytes=members * part.displaced_bytes,
        )
        for part in parts
    ]
