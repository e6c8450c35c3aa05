"""An attribution as lines of text."""

from __future__ import annotations

from typing import Any

from experiment_utils.quantities import format_bytes
from memory.attribute.attribution import Attribution

_KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buffers": "buffers of modules",
    "saved": "saved for a backward pass",
    "tensors": "other tensors",
    "arrays": "NumPy arrays",
    "objects": "other large objects",
}
_PLACES = {"anon": "", "file": " (mapped file: page cache, not anon)", "shared": " (shared memory, not anon)"}


def lines(found: Attribution, rows: int = 10) -> list[str]:
    """Sums by kind, what is left, the largest, and modules, with at most `rows` of each list."""
    facts = ", ".join(f"{key} {value}" for key, value in found.facts.items())
    amounts = {"anon": found.anon_bytes, "mapped files": found.file_bytes, "shared": found.shmem_bytes}
    known = ", ".join(f"{name} {format_bytes(size)}" for name, size in amounts.items() if size is not None)
    text = [f"process {found.pid}{f' ({facts})' if facts else ''}: {known or 'memory unknown'}"]
    text += map(_kind, found.kinds)
    if found.unexplained_bytes is not None:
        rest = "not in tensors, arrays and large objects; `memray run` names the lines of code that hold it"
        text.append(_row(found.unexplained_bytes, rest))
    for title, body in (
        ("largest", list(map(_large, found.largest[:rows]))),
        ("by module", list(map(_module, found.modules[:rows]))),
    ):
        if body:
            text += ["", title, *(f"  {line}" for line in body)]
    if found.cuda:
        sizes = (found.cuda.get(f"{name}_bytes", 0) for name in ("allocated", "reserved", "peak"))
        text += ["", "CUDA: allocated {}, reserved {}, peak {}".format(*map(format_bytes, sizes))]
    return [*text, *(f"note: {note}" for note in found.notes)]


def brief(found: Attribution) -> str:
    """One line: `... | anon 412 MB: optimizer state 84 MB, parameters 42 MB, the rest 230 MB`."""
    anon = sorted((of for of in found.kinds if of["where"] == "anon"), key=lambda of: -of["resident_bytes"])
    parts = [
        f"{_KINDS[of['kind']]} {format_bytes(of['resident_bytes'])}"
        for of in anon
        if of["resident_bytes"] >= 1 << 16
    ]
    if found.unexplained_bytes is not None:
        parts.append(f"the rest {format_bytes(found.unexplained_bytes)}")
    total = "unknown" if found.anon_bytes is None else format_bytes(found.anon_bytes)
    when = " ".join(str(found.facts[key]) for key in ("when", "step") if found.facts.get(key) is not None)
    return f"[mem] who holds it, {when or 'now'} | anon {total}: {', '.join(parts)}"


def _row(size: int, words: str) -> str:
    return f"{format_bytes(size):>9}  {words}"


def _kind(of: dict[str, Any]) -> str:
    size, held = of["bytes"], of["resident_bytes"]
    where = _PLACES.get(of["where"], f" ({of['where']})")
    untouched = f", {format_bytes(size - held)} more never touched" if size - held >= 1 << 20 else ""
    return _row(held, f"{_KINDS.get(of['kind'], of['kind'])}, {of['count']:,}{where}{untouched}")


def _large(one: dict[str, Any]) -> str:
    held = one["bytes"] if one["resident_bytes"] is None else one["resident_bytes"]
    total = "" if held == one["bytes"] else f" of {format_bytes(one['bytes'])}"
    where = "" if one["where"] == "anon" else f", {one['where']}"
    return f"{_row(held, one['name'])}{total} ({one['what']}{where})"


def _module(of: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {format_bytes(of[key])}" for key, name in _KINDS.items() if of.get(key))
    return f"{_row(of['bytes'], of['module'])}: {parts}"
