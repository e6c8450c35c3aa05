"""Numbers in the message of a GPU allocation that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from experiment_utils.json_values import at_path, unsigned
from memory.estimate.constants import CUDA_CONTEXT
from memory.explain.evidence.log_patterns import patterns

_AMOUNT = r"([\d.,]+ ?(?:bytes|[KMGTP]?i?B?)\b)"
_PARTS = {
    "asked": rf"[Tt]ried to allocate {_AMOUNT}|[Ff]ailed to allocate request for {_AMOUNT}"
    rf"|trying to allocate {_AMOUNT}|Out of memory allocating {_AMOUNT}",
    "total": rf"total capaci?ty of {_AMOUNT}|{_AMOUNT} total capacity",
    "free": rf"of which {_AMOUNT} is free|{_AMOUNT} free",
    "allocated": rf"{_AMOUNT} is allocated by PyTorch|{_AMOUNT} already allocated",
    "unallocated": rf"{_AMOUNT} is reserved by PyTorch but unallocated",
    "reserved": rf"{_AMOUNT} (?:reserved in total by PyTorch|cached)",
    "in_use": rf"this process has {_AMOUNT} memory in use",
}
_OTHERS = re.compile(rf"[Pp]rocess \d+ has {_AMOUNT} memory in use")
_CONTEXT_BYTES = 3 << 30
"""The CUDA context and what libraries keep are less."""
_LEAST_CONTEXT_BYTES = 512 << 20
"""Least share of the unlisted memory that they hold."""


@dataclass(frozen=True)
class GpuMessage:
    """Amounts of a message, None where it lacks them."""

    asked_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None
    """Reserved by torch, and used by no tensor."""
    others_bytes: int = 0
    """Held by other processes, listed or not."""
    line: str = ""


def gpu_message(text: str) -> GpuMessage | None:
    """Read the last message in `text`; torch 1.x and 2.x put the numbers differently."""
    known = [found for kind in ("gpu_message", "gpu_oom", "gpu_handle") for found in patterns(kind)]
    lines = [line for line in text.splitlines() if any(pattern.search(line) for pattern in known)]
    if not lines:
        return None
    line = ([line for line in lines if "to allocate" in line] or lines)[-1]
    found = {name: _amount(re.search(pattern, line)) for name, pattern in _PARTS.items()}
    allocated, idle = found["allocated"], found["unallocated"]
    if idle is None and found["reserved"] is not None and allocated is not None:
        idle = max(0, found["reserved"] - allocated)
    others = _of_others(line, found, (allocated or 0) + (idle or 0))
    return GpuMessage(
        found["asked"], found["total"], found["free"], allocated, idle, others, line.strip()[-600:]
    )


def _of_others(line: str, found: dict[str, int | None], own: int) -> int:
    """Bytes that other processes hold: those that are listed, else what this one does not account for.

    In a container this very process can be listed as if it were another.
    """
    amounts = [_amount(match) or 0 for match in _OTHERS.finditer(line)]
    ours = [amount for amount in amounts if own <= amount <= own + _CONTEXT_BYTES]
    if found["in_use"] is None and ours:
        amounts.remove(min(ours))
    mine = found["in_use"] or (min(ours) if ours else own and own + _LEAST_CONTEXT_BYTES)
    if amounts or not found["total"] or found["free"] is None or not mine:
        return sum(amounts)
    return max(0, found["total"] - found["free"] - mine)


def amount_bytes(text: str) -> int | None:
    """Convert `2.00 GiB`, `16.00GiB`, `8,589,934,592 bytes`; None if it is no number."""
    found = re.match(r"([\d.,]+) ?([KMGTP]?)", text)
    try:
        scale = 1024 ** " KMGTP".index(found[2] or " ") if found else 0
        return int(float(found[1].replace(",", "")) * scale) if found else None
    except (ValueError, OverflowError):
        return None


def _amount(match: re.Match[str] | None) -> int | None:
    """The amount of the alternative that matched."""
    return amount_bytes(next(filter(None, match.groups()), "")) if match else None


def recorded_device(records: list[dict[str, Any]], message: GpuMessage) -> GpuMessage:
    """State of the device at the last stage that recorded it, for a message without numbers."""
    for record in reversed(records):
        names = ("total", "free", "allocated", "reserved")
        total, free, allocated, reserved = (
            unsigned(at_path(record, f"snapshot.gpu.{name}_bytes")) for name in names
        )
        if total is None or allocated is None or reserved is None:
            continue
        others = 0 if free is None else max(0, total - free - reserved - CUDA_CONTEXT.in_bytes)
        idle = max(0, reserved - allocated)
        return GpuMessage(message.asked_bytes, total, free, allocated, idle, others, message.line)
    return message
