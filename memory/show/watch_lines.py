"""A `View` as one plain line, as JSON, or as a screen."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.record.samples import Sample
from memory.show.screen import Line, Screen, percent
from memory.show.usage import parts_of, usage_rows
from memory.show.watch_view import View

_FORESEEN = 20
"""A slope is extrapolated over at most this many times the time it was seen."""


def line(view: View) -> str:
    """`12:01:07 | 9.4 GB of 32.0 GB unreclaimable (29%) | anon 8.9 GB ... | train step 1,200`."""
    sample = view.sample
    if sample is None:
        return f"{view.title}: {view.ended or 'no sample yet'}"
    amounts = parts_of(sample) | {"swap": sample.swap_bytes, "page cache": sample.cache_bytes}
    parts = [
        _clock(sample),
        _use(view, sample),
        *(f"{name} {format_bytes(size)}" for name, size in amounts.items() if size),
        _gpu(sample, "GPU "),
        "" if sample.processes is None else f"{sample.processes} process{'es' * (sample.processes != 1)}",
        growth(view),
        view.stage,
        view.note,
    ]
    return " | ".join(part for part in parts if part)


def to_json(view: View) -> dict[str, Any]:
    """All of it, in bytes."""
    sample = {} if view.sample is None else asdict(view.sample)
    if sample:
        sample["beside_anon_bytes"] = sample.pop("neighbours_anon_bytes")  # its key in earlier versions
    return {
        "watched": view.title,
        "stage": view.stage,
        "ended": view.ended,
        "note": view.note,
        "slope_bytes_per_s": None if view.slope is None else round(view.slope.bytes_per_s),
        **sample,
    }


def watch_screen(view: View) -> Screen:
    """The screen of a terminal."""
    sample = view.sample
    title = f"Memory of {view.title}"
    if sample is None:
        return Screen(title, [Line("", view.ended or "no sample yet")])
    facts = {"growth": growth(view), "stage": view.stage, "GPU": _gpu(sample), "!": view.note}
    return Screen(
        title,
        [
            *usage_rows(sample, view.limit_at),
            *(Line(label, text) for label, text in facts.items() if text),
        ],
        sample.tree,
        f"Processes: {sample.processes or 0}, the largest first",
        f"{_clock(sample)}  {view.ended or 'Ctrl-C ends watching'}",
    )


def growth(view: View) -> str | None:
    """`+3.2 MB/s: full in 12 min`."""
    sample = view.sample
    if view.slope is None or sample is None:
        return None
    slope = view.slope.bytes_per_s
    sign = "+" if slope > -1024 else "-"
    text = f"{sign}{format_bytes(abs(slope)) if abs(slope) >= 1024 else '0 B'}/s"
    left = sample.left_bytes or 0
    if slope >= 1024 and 0 < left / slope < _FORESEEN * view.slope.over_s:
        seconds = left / slope
        text += f": full in {seconds:.0f} s" if seconds < 120 else f": full in {seconds / 60:.0f} min"
    return text


def _clock(sample: Sample) -> str:
    return time.strftime("%H:%M:%S", time.localtime(sample.time_s))


def _use(view: View, sample: Sample) -> str:
    if sample.unreclaimable_bytes is None:
        return "unreclaimable memory unknown"
    used = format_bytes(sample.unreclaimable_bytes)
    if not sample.limit_bytes:
        return f"{used} unreclaimable"
    owner = "the host's " if view.limit_at == "host" else ""
    share = percent(sample.unreclaimable_bytes, sample.limit_bytes)
    return f"{used} of {owner}{format_bytes(sample.limit_bytes)} unreclaimable ({share})"


def _gpu(sample: Sample, label: str = "") -> str | None:
    """`41.0 GB of 80.0 GB, torch 33.0 GB, 97% busy, 310 W`: use of the device by all processes, torch's part
    of it, and its activity.
    """
    if sample.gpu_used_bytes is None or sample.gpu_total_bytes is None:
        return None
    torch = "" if sample.gpu_reserved_bytes is None else f", torch {format_bytes(sample.gpu_reserved_bytes)}"
    busy = "" if sample.gpu_busy_percent is None else f", {sample.gpu_busy_percent}% busy"
    power = "" if sample.gpu_power_mw is None else f", {sample.gpu_power_mw / 1000:.0f} W"
    used, total = format_bytes(sample.gpu_used_bytes), format_bytes(sample.gpu_total_bytes)
    return f"{label}{used} of {total}{torch}{busy}{power}"
