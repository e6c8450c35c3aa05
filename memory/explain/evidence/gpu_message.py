"""Numbers in the message of a GPU allocation that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from experiment_utils.json_values import mapping, unsigned
from memory.estimate.constants import CUDA_CONTEXT
from memory.explain.evidence.log_patterns import patterns


@dataclass(frozen=True)
class GpuMessage:
    """Amounts of a message, None where it lacks them."""

    asked_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    unallocated_bytes: int | None
    in_use_bytes: int | None
    """Held by this process, with the CUDA context."""
    others_bytes: int
    """Held by other processes, listed or not."""
    line: str


_MESSAGES = (*patterns("gpu_message"), *patterns("gpu_oom"), *patterns("gpu_handle"))
_AMOUNT = r"(?P<{0}>[\d.]+) (?P<{0}_unit>bytes|[KMGTP]?i?B)"
_GPU_PARTS = {
    "asked": re.compile(r"[Tt]ried to allocate " + _AMOUNT.format("n")),
    "total": re.compile(r"total capaci?ty "
    "of " + _AMOUNT.format("n") + "|" + _AMOUNT.format("m") + " total capacity"),
    "free": re.compile(r"of which " + _AMOUNT.format("n") + " is free|" + _AMOUNT.format("m") + " free"),
    "allocated": re.compile(
        _AMOUNT.format("n") + " is allocated by PyTorch|" + _AMOUNT.format("m") + " already allocated"
    ),
    "unallocated": re.compile(_AMOUNT.format("n") + " is reserved by PyTorch but unallocated"),
    "reserved": re.compile(_AMOUNT.format("n") + r" (?:reserved in total by PyTorch|cached)"),
    "in_use": re.compile(r"this process has " + _AMOUNT.format("n") + " memory in use"),
}  # fmt: skip
_OTHERS = re.compile(r"[Pp]rocess \d+ has " + _AMOUNT.format("n") + " memory in use")
_CONTEXT_BYTES = 3 << 30
"""The CUDA context and what libraries keep are less."""
_LEAST_CONTEXT_BYTES = 512 << 20
"""Least share of the unlisted memory that they hold."""
_UNITS = {"B": 1, "BYTES": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


def gpu_message(text: str) -> GpuMessage | None:
    """Read the last message in `text`; torch 1.x and 2.x put the numbers differently."""
    lines = [line for line in text.splitlines() if any(pattern.search(line) for pattern in _MESSAGES)]
    if not lines:
        return None
    with_numbers = [line for line in lines if "ried to allocate" in line]
    line = (with_numbers or lines)[-1]
    found = {name: _first_amount(pattern.search(line)) for name, pattern in _GPU_PARTS.items()}
    reserved, allocated = found.pop("reserved"), found["allocated"]
    if found["unallocated"] is None and reserved is not None and allocated is not None:
        found["unallocated"] = max(0, reserved - allocated)
    others = _of_others(line, found)
    amounts = {f"{name}_bytes": amount for name, amount in found.items()}
    return GpuMessage(others_bytes=others, line=line.strip()[-600:], **amounts)


def _of_others(line: str, found: dict[str, int | None]) -> int:
    """Bytes that other processes hold: those that are listed, else what this one does not account for.

    In a container this very process may be listed as if it were another.
    """
    amounts = [_first_amount(match) or 0 for match in _OTHERS.finditer(line)]
    own = (found["allocated"] or 0) + (found["unallocated"] or 0)
    ours = [amount for amount in amounts if own <= amount <= own + _CONTEXT_BYTES]
    if found["in_use"] is None and ours:
        amounts.remove(min(ours))
    mine = found["in_use"] or (min(ours) if ours else own and own + _LEAST_CONTEXT_BYTES)
    if amounts or not found["total"] or found["free"] is None or not mine:
        return sum(amounts)
    return max(0, found["total"] - found["free"] - mine)


def amount_bytes(number: str, unit: str) -> int | None:
    """Convert `2.00`, `GiB`; None if it is no number."""
    try:
        return int(float(number) * _UNITS.get(unit.upper(), _UNITS.get(unit[:1].upper(), 1)))
    except (ValueError, OverflowError):
        return None


def _first_amount(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    parts = match.groupdict()
    name = "n" if parts.get("n") is not None else "m"
    return amount_bytes(parts[name], parts[f"{name}_unit"])


def recorded_device(records: list[dict[str, Any]], asked_bytes: int | None, line: str) -> GpuMessage | None:
    """State of the device at the last stage that recorded it, in place of a message without numbers."""
    for record in reversed(records):
        gpu = mapping(mapping(record.get("snapshot")).get("gpu"))
        total, free = unsigned(gpu.get("total_bytes")), unsigned(gpu.get("free_bytes"))
        allocated, reserved = unsigned(gpu.get("allocated_bytes")), unsigned(gpu.get("reserved_bytes"))
        if total is None or allocated is None or reserved is None:
            continue
        others = 0 if free is None else max(0, total - free - reserved - CUDA_CONTEXT.in_bytes)
        idle = max(0, reserved - allocated)
        return GpuMessage(asked_bytes, total, free, allocated, idle, None, others, line)
    return None
