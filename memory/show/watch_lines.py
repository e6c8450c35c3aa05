"""A `View` as one plain line, as JSON, or drawn in a terminal."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.record.samples import Sample
from memory.show.watch_view import View

_NEAR, _HIGH = 0.92, 0.80
_FORESEEN = 20
"""So far ahead a slope is believed: no farther than as many times what it was seen over."""


def line(view: View) -> str:
    """`12:01:07 | 9.4 GB of 32.0 GB unreclaimable (29%) | anon 8.9 GB ... | train step 1,200`."""
    sample = view.sample
    if sample is None:
        return f"{view.title}: {view.ended or 'no sample yet'}"
    parts = [
        time.strftime("%H:%M:%S", time.localtime(sample.time_s)),
        amount(view),
        *(f"{name} {format_bytes(value)}" for name, value in parts_of(view) if value),
        gpu(sample),
        "" if sample.processes is None else f"{sample.processes} process{'es' * (sample.processes != 1)}",
        growth(view),
        view.stage,
        view.note,
    ]
    return " | ".join(part for part in parts if part)


def amount(view: View) -> str:
    """U against the limit."""
    sample = view.sample
    if sample is None or sample.unreclaimable_bytes is None:
        return "unreclaimable memory unknown"
    used = format_bytes(sample.unreclaimable_bytes)
    if not sample.limit_bytes:
        return f"{used} unreclaimable"
    whose = "the host's " if view.is_host_limit else ""
    share = 100 * sample.unreclaimable_bytes / sample.limit_bytes
    if view.is_polled:
        return f"{used} rss of --mem {format_bytes(sample.limit_bytes)}, polled by Slurm ({share:.0f}%)"
    return f"{used} of {whose}{format_bytes(sample.limit_bytes)} unreclaimable ({share:.0f}%)"


def parts_of(view: View) -> list[tuple[str, int | None]]:
    """What U is made of, and what is not in it; of an RSS that is polled what that is."""
    sample = view.sample
    if sample is None:
        return []
    if view.is_polled:
        return [("anon", sample.tree_anon_bytes), ("mapped files", sample.tree_file_bytes)]
    return [
        ("anon", sample.anon_bytes),
        ("shm", sample.shmem_bytes),
        ("kernel", sample.kernel_bytes),
        ("locked files", sample.locked_bytes or None),
        ("swap", sample.swap_bytes),
        ("page cache", sample.cache_bytes),
    ]


def gpu(sample: Sample) -> str | None:
    """`GPU 41.0 GB of 80.0 GB, torch 33.0 GB`: the device's use by all processes, and torch's part of it."""
    if sample.gpu_used_bytes is None or sample.gpu_total_bytes is None:
        return None
    torchs = "" if sample.gpu_reserved_bytes is None else f", torch {format_bytes(sample.gpu_reserved_bytes)}"
    return f"GPU {format_bytes(sample.gpu_used_bytes)} of {format_bytes(sample.gpu_total_bytes)}{torchs}"


def growth(view: View) -> str | None:
    """`+3.2 MB/s: full in 12 min`, where it grows so."""
    sample = view.sample
    if view.slope is None or sample is None:
        return None
    slope = view.slope.bytes_per_s
    sign = "+" if slope > -1024 else "-"
    told = f"{sign}{format_bytes(abs(slope)) if abs(slope) >= 1024 else '0 B'}/s"
    room = sample.left_bytes or 0
    if slope >= 1024 and room > 0 and room / slope < _FORESEEN * view.slope.over_s:
        seconds = room / slope
        told += f": full in {seconds:.0f} s" if seconds < 120 else f": full in {seconds / 60:.0f} min"
    return told


def to_json(view: View) -> dict[str, Any]:
    """All of it, in bytes."""
    sample = {} if view.sample is None else asdict(view.sample)
    return {
        "watched": view.title,
        "stage": view.stage,
        "ended": view.ended,
        "note": view.note,
        "slope_bytes_per_s": None if view.slope is None else round(view.slope.bytes_per_s),
        **sample,
    }


def drawing(view: View) -> Any:
    """For rich."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    sample = view.sample
    if sample is None:
        return Panel(Text(view.ended or "no sample yet"), title=Text(view.title))
    share = (sample.unreclaimable_bytes or 0) / (sample.limit_bytes or 1)
    colour = "red" if share >= _NEAR else "yellow" if share >= _HIGH else "green"
    rows: list[Any] = [
        Text(amount(view)),
        ProgressBar(total=1.0, completed=min(1.0, share), complete_style=colour, finished_style=colour),
        Text(
            "   ".join(f"{name} {format_bytes(value)}" for name, value in parts_of(view) if value is not None)
        ),
    ]
    about = [growth(view), gpu(sample), view.stage and f"stage {view.stage}", _events(sample)]
    rows.append(Text("   ".join(part for part in about if part)))
    table = Table(box=None, pad_edge=False)
    for name in ("pid", "name", "anon", "shm", "mapped files", "rss"):
        table.add_column(name, justify="left" if name == "name" else "right")
    for one in sample.tree[:8]:
        amounts = (one.anon_bytes, one.shmem_bytes, one.file_bytes, one.rss_bytes)
        told = ("?" if value is None else format_bytes(value) for value in amounts)
        table.add_row(str(one.pid), Text(one.name), *told)
    rows.append(table)
    more = (sample.processes or 0) - len(sample.tree[:8])
    if more > 0:
        rows.append(Text(f"and {more} more processes"))
    when = time.strftime("%H:%M:%S", time.localtime(sample.time_s))
    return Panel(Group(*rows), title=Text(view.title), subtitle=Text(view.ended or when))


def _events(sample: Sample) -> str | None:
    if sample.oom_kills:
        return f"{sample.oom_kills} killed by the kernel"
    return None
