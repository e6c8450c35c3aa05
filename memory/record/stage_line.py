"""Amounts of memory as people read them, and the one line that a stage prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiment_utils.quantities import (
    BYTE_UNITS,
    GB_EXPONENT,
    MB_EXPONENT,
    byte_digits,
    byte_exponent,
    format_bytes,
)
from memory.measure.snapshot import Snapshot

_LABEL_WIDTH = 22
_WORTH_TELLING_BYTES = 1 << 20


def format_change(n: int) -> str:
    """`+35 MB`, `-1.2 GB`: never in less than megabytes, which is noise."""
    if abs(n) < 0.05 * (1 << 20):
        return "+0 MB"
    exponent = max(MB_EXPONENT, byte_exponent(n))
    return f"{'+' if n > 0 else '-'}{byte_digits(abs(n), exponent, is_fine=True)} {BYTE_UNITS[exponent]}"


def stage_label(name: str, facts: Mapping[str, Any], depth: int, thread: str | None) -> str:
    """`train step 1,200`; a stage within a stage is indented, a thread of its own is named."""
    step = facts.get("step")
    label = "  " * depth + name
    if isinstance(step, int) and step > 0:
        label += f" step {step:,}"
    return label if thread is None else f"{label} ({thread})"


def stage_line(
    label: str,
    after: Snapshot,
    change: Mapping[str, int],
    seconds: float,
    error: str | None = None,
    rise_bytes: int | None = None,
    highest_u_bytes: int | None = None,
) -> str:
    """One stage in one line: where memory stands after it, and what changed while it ran.

    A number without a unit is in GB; as soon as one part of the line is not in GB, every part says its
    unit. Parts that do not apply are left out. A number shorter than usual is made up for at the end
    of its part, so that the bars of successive lines stand below each other. rise_bytes: how far resident
    memory went above where the stage began, if it came down again; highest_u_bytes: the highest sample of U,
    likewise.
    """
    u = after.unreclaimable_bytes
    found = _split(after), _rss(after), _workers(after), _gpu(after)
    parts = [part for part in found if part is not None]
    in_gb = (
        u is not None
        and byte_exponent(u) == GB_EXPONENT
        and all(part.exponent == GB_EXPONENT for part in parts)
    )
    columns = [
        _job(after),
        *(part.render(with_unit=not in_gb) for part in parts),
        _change(change, seconds, error, rise_bytes, highest_u_bytes),
    ]
    return " | ".join([f"[mem] {label:<{_LABEL_WIDTH}}", *columns])


def fitted(line: str, columns: int) -> str:
    """A stage's line for a terminal of so many columns: what is told least goes first.

    Its padding; then rss, which is no danger; the processes; the parts of the job's number; some words;
    the GPU. A line that is still too long stays so.
    """
    if len(line) <= columns:
        return line
    parts = [part.rstrip() for part in line.split(" | ")]
    for shorter in _SHORTER:
        if len(" | ".join(parts)) <= columns:
            break
        parts = [told for part in parts if (told := shorter(part)) is not None]
    return " | ".join(parts)


def _without(beginning: str) -> Callable[[str], str | None]:
    return lambda part: None if part.startswith(beginning) else part


_SHORTER: tuple[Callable[[str], str | None], ...] = (
    _without("rss "),
    _without("main "),
    _without("anon "),
    lambda part: part.replace(" unreclaimable (", " ("),
    lambda part: part.replace(" of the host's ", " of "),
    _without("GPU "),
)


@dataclass(frozen=True)
class _Part:
    """Words around amounts that share one unit, that of the largest: `rss {} of which {}{unit} ...`."""

    template: str
    amounts: tuple[int, ...]

    @property
    def exponent(self) -> int:
        return max(MB_EXPONENT, byte_exponent(max(self.amounts)))

    def render(self, *, with_unit: bool) -> str:
        numbers = [byte_digits(amount, self.exponent) for amount in self.amounts]
        unit = f" {BYTE_UNITS[self.exponent]}" if with_unit else ""
        missing = len(" GB") - len(unit) + sum(max(0, len("99.9") - len(number)) for number in numbers)
        return self.template.format(*numbers, unit=unit) + " " * missing


def _job(after: Snapshot) -> str:
    u, limit = after.unreclaimable_bytes, after.limit_bytes
    if u is None:
        why = after.notes[0].split(":")[0] if after.notes else "not told by this system"
        return f"unreclaimable memory unknown ({why})"
    scope = f"{after.scope} up to" if after.scope == "process tree" and after.workers else after.scope
    used, percent = format_bytes(u), ""
    missing = max(0, len("99.9 GB") - len(used))
    text = f"{scope} {used} unreclaimable"
    if limit:
        of = format_bytes(limit)
        if used[-2:] == of[-2:]:
            used, missing = used[:-3], missing + 3
        whose = "of the host's" if after.limit_at == "host" else "of"
        percent = f"{100 * u / limit:.0f}" if u >= limit / 100 else "<1"
        missing += max(0, 2 - len(percent))
        text = f"{scope} {used} {whose} {of} unreclaimable ({percent}%)"
    return text + " " * missing


def _split(after: Snapshot) -> _Part | None:
    if after.unreclaimable_bytes is None:
        return None
    job = after.job if after.scope == "job" else None
    amounts = {
        "anon": after.anon_bytes if job is None else job.anon_bytes,
        "shm": after.shmem_bytes,
        "kernel": None if job is None else job.kernel_bytes,
        "locked files": (None if job is None else job.locked_bytes) or None,
    }
    known = {name: amount for name, amount in amounts.items() if amount is not None}
    return (
        _Part(" ".join(f"{name} {{}}" for name in known) + "{unit}", tuple(known.values())) if known else None
    )


def _rss(after: Snapshot) -> _Part | None:
    rss, files = after.rss_bytes, after.file_bytes
    if rss is None:
        return None
    if files is None:
        return _Part("rss {}{unit}", (rss,))
    return _Part("rss {} of which {}{unit} mapped files (reclaimable)", (rss, files))


def _workers(after: Snapshot) -> _Part | None:
    of_main, of_workers, count = after.main.anon_bytes, after.workers_anon_bytes, len(after.workers)
    if of_main is None or of_workers is None:
        return None
    return _Part(f"main {{}} + {count} worker{'s' * (count != 1)} {{}}{{unit}}", (of_main, of_workers))


def _gpu(after: Snapshot) -> _Part | None:
    gpu = after.gpu
    if gpu is None:
        return None
    return _Part("GPU {} of {}, peak {}{unit}", (gpu.allocated_bytes, gpu.total_bytes, gpu.peak_bytes))


def _change(
    change: Mapping[str, int],
    seconds: float,
    error: str | None,
    rise_bytes: int | None,
    highest_u_bytes: int | None,
) -> str:
    """`+35 MB anon, +1.0 GB shm in 0.42 s`: anon always, the others where they moved by a megabyte."""
    names = {"anon_bytes": "anon", "shmem_bytes": "shm", "file_bytes": "mapped files", "gpu_bytes": "GPU"}
    told = [
        f"{format_change(change[key])} {name}"
        for key, name in names.items()
        if key in change and (key == "anon_bytes" or abs(change[key]) >= _WORTH_TELLING_BYTES)
    ]
    if rise_bytes is not None:
        told.append(f"{format_change(rise_bytes)} rss at its peak")
    if highest_u_bytes is not None:
        told.append(f"U up to {format_bytes(highest_u_bytes)} (sampled)")
    text = " ".join(filter(None, [", ".join(told), f"in {duration(seconds)}"]))
    return text if error is None else f"{text}, ended by {error.partition(':')[0]}"


def duration(seconds: float) -> str:
    """`34.0 ms`, `0.42 s`, `2.5 min`, `3.0 h`."""
    if seconds < 0.1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
