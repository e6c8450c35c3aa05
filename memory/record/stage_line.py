"""Format the `[mem]` line of a stage: first what decides, in 80 columns, then details after ` | `."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiment_utils.quantities import BYTE_UNITS, MB_EXPONENT, byte_digits, byte_exponent, format_bytes
from memory.measure.snapshot import Snapshot

COLUMNS = 80
_DETAILS = " | "
_GAP = "  "
_NOTABLE_BYTES = 1 << 20
_NOTABLE_PEAK_BYTES = 16 << 20
"""A peak above both ends of a stage by less is ordinary traffic of the allocators."""


def format_change(n: int) -> str:
    """Format a difference, in megabytes or more: `+35 MB`, `-1.2 GB`. Less than 0.05 MB is `+0 MB`."""
    if abs(n) < 0.05 * (1 << 20):
        return "+0 MB"
    exponent = max(MB_EXPONENT, byte_exponent(n))
    return f"{'+' if n > 0 else '-'}{byte_digits(abs(n), exponent, is_fine=True)} {BYTE_UNITS[exponent]}"


def duration(seconds: float) -> str:
    """Format a duration: `34.0 ms`, `0.42 s`, `2.5 min`, `3.0 h`."""
    if seconds < 0.1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def stage_label(name: str, facts: Mapping[str, Any], depth: int, thread: str | None) -> str:
    """Name of a stage with its step, `train 1,200`. Nested stages are indented, other threads are named."""
    step = facts.get("step")
    label = _GAP * depth + name
    if isinstance(step, int) and step > 0:
        label += f" {step:,}"
    return label if thread is None else f"{label} ({thread})"


def stage_line(
    label: str,
    after: Snapshot,
    change: Mapping[str, int],
    seconds: float,
    *,
    error: str | None = None,
    peak_bytes: int | None = None,
    growth: Sequence[str] = (),
) -> str:
    """Format one stage: the parts in order of importance, two spaces apart, then details after ` | `.

    Args:
        label: from `stage_label`; shortened if the line's first part needs the columns.
        after: memory at the end of the stage.
        change: bytes by name as in `Stage.change`, and that of the run's memory: `run_bytes`.
        error: exception that ended the stage, `ValueError: ...`.
        peak_bytes: the run's memory at the highest sample within the stage; shown if well above both ends.
        growth: parts about growth by step, shown instead of the change over the stage.
    """
    first = _used(after)
    over_stage = _GAP.join(_over_stage(after, change, seconds, peak_bytes))
    room = COLUMNS - len("[mem] ") - len(_GAP) - len(first)
    parts = [
        f"[mem] {label if len(label) <= room else label[: room - 1] + '~'}",
        first,
        "" if error is None else f"failed: {error.partition(':')[0]}",
        _gpu_share(after),
        *(growth or [over_stage]),
    ]
    shown = _GAP.join(filter(None, parts))
    return _DETAILS.join([shown, *_details(after, change, seconds)])


def fitted(line: str, columns: int = COLUMNS) -> str:
    """Shorten a stage's line to a width: no details, and the least important parts left out."""
    shown = line.partition(_DETAILS)[0]
    while len(shown) > columns and _GAP in shown:
        shown = shown.rpartition(_GAP)[0].rstrip()
    return shown


def _used(after: Snapshot) -> str:
    """The run's memory with its limit; RSS on a system that does not split it."""
    held = after.run_bytes
    if after.unreclaimable_bytes is None or held is None:
        return "memory unknown" if held is None else f"rss {format_bytes(held)}"
    if after.scope == "job" and after.limit_at != "host":
        return f"job {_of_limit(held, after.limit_bytes)}"
    up_to = " up to" if after.scope != "job" and after.workers else ""
    return f"run{up_to} {_of_limit(held, after.limit_bytes, 'host ' if after.limit_at == 'host' else '')}"


def _of_limit(used_bytes: int, limit_bytes: int | None, whose: str = "") -> str:
    """Format an amount and its limit: `9.4/32.0 GB (29%)`, `412 MB/host 23.5 GB (2%)`."""
    used = format_bytes(used_bytes)
    if not limit_bytes:
        return used
    limit = format_bytes(limit_bytes)
    if used.split()[1] == limit.split()[1]:
        used = used.split()[0]
    percent = f"{100 * used_bytes / limit_bytes:.0f}" if used_bytes >= limit_bytes / 100 else "<1"
    return f"{used}/{whose}{limit} ({percent}%)"


def _gpu_share(after: Snapshot) -> str:
    gpu = after.gpu
    return "" if gpu is None else f"GPU {100 * gpu.peak_bytes / max(1, gpu.total_bytes):.0f}%"


def _over_stage(
    after: Snapshot, change: Mapping[str, int], seconds: float, peak_bytes: int | None
) -> Iterator[str]:
    amount = f"{format_change(change['run_bytes'])} " if "run_bytes" in change else ""
    yield f"{amount}in {duration(seconds)}"
    held = after.run_bytes
    if (
        peak_bytes is not None
        and held is not None
        and peak_bytes - max(held, held - change.get("run_bytes", 0)) >= _NOTABLE_PEAK_BYTES
    ):
        yield f"peak {format_bytes(peak_bytes)}"


def _details(after: Snapshot, change: Mapping[str, int], seconds: float) -> Iterator[str]:
    """Parts of the numbers before them, each if it is known."""
    job, gpu = after.job if after.scope == "job" else None, after.gpu
    yield from after.notes[:1] if after.unreclaimable_bytes is None else ()
    yield from _sum(
        {
            "anon": after.anon_bytes if job is None else job.anon_bytes,
            "shm": after.shmem_bytes,
            "kernel": None if job is None else job.kernel_bytes,
            "locked files": (None if job is None else job.locked_bytes) or None,
        }
    )
    if after.rss_bytes is not None:
        files = after.file_bytes
        mapped = "" if files is None else f" ({format_bytes(files)} mapped files)"
        yield f"rss {format_bytes(after.rss_bytes)}{mapped}"
    if after.workers_anon_bytes is not None:
        count = len(after.workers)
        yield from _sum(
            {"main": after.main.anon_bytes, f"{count} worker{'s' * (count != 1)}": after.workers_anon_bytes}
        )
    if gpu is not None:
        amounts = (gpu.allocated_bytes, gpu.peak_bytes, gpu.total_bytes)
        yield "GPU {}, peak {}, of {}".format(*map(format_bytes, amounts))
    names = {"anon_bytes": "anon", "shmem_bytes": "shm", "file_bytes": "mapped files", "gpu_bytes": "GPU"}
    changes = [
        f"{format_change(change[key])} {name}"
        for key, name in names.items()
        if key in change and (key == "anon_bytes" or abs(change[key]) >= _NOTABLE_BYTES)
    ]
    yield f"{', '.join(changes)} in {duration(seconds)}".lstrip()


def _sum(amounts: Mapping[str, int | None]) -> Iterator[str]:
    known = [f"{name} {format_bytes(amount)}" for name, amount in amounts.items() if amount is not None]
    if known:
        yield " + ".join(known)
