"""Slurm's lists of hosts and of tasks written out, without asking scontrol."""

from __future__ import annotations

import itertools
import re

_PIECES = re.compile(r"\[([^\[\]]*)\]")


def expand_hosts(text: str) -> list[str]:
    """`n[1-2,07],gpu-a` -> n1, n2, n07, gpu-a, in Slurm's order; several brackets multiply.

    Source: slurm.conf(5), "node names", and scontrol(1), "show hostnames".

    Raises:
        ValueError: it is no such list.
    """
    hosts: list[str] = []
    for name in _split(text):
        parts = _PIECES.split(name)
        if any(character in part for part in parts[::2] for character in "[]"):
            raise ValueError(f"{name}: brackets that do not close")
        choices = [[part] if place % 2 == 0 else _numbers(part) for place, part in enumerate(parts)]
        hosts += map("".join, itertools.product(*choices))
    return hosts


def expand_counts(text: str) -> list[int]:
    """`2(x3),1` -> 2, 2, 2, 1: tasks on each node (SLURM_STEP_TASKS_PER_NODE).

    Raises:
        ValueError: it is no such list.
    """
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            raise ValueError(f"{part}: expected a number of tasks, as 2 or 2(x3)")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket."""
    names, depth, name = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            names.append(name)
            name = ""
        else:
            name += character
    return [found.strip() for found in (*names, name) if found.strip()]


def _numbers(text: str) -> list[str]:
    """`1-3,08` -> 1, 2, 3, 08: as wide as the first number of a range is written."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"[{text}]: expected numbers and ranges of them")
        end = int(last) if dash else int(first)
        found += [f"{number:0{len(first)}d}" for number in range(int(first), end + 1)]
    return found
