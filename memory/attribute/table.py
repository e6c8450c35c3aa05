"""An attribution as lines of text."""

from __future__ import annotations

from typing import Any

from experiment_utils.quantities import format_bytes
from memory.attribute.attribution import Attribution

_WORDS = {
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
_ROWS = 10


def lines(found: Attribution, rows: int = _ROWS) -> list[str]:
    """The whole answer: what was found, what is left, the largest, modules, files, sites."""
    told = [_head(found), *_sums(found)]
    for title, body in (
        ("largest", [_large(one) for one in found.largest[:rows]]),
        ("objects of Python by type, without what they refer to", _types(found)),
        ("by module", _modules(found, rows)),
        (
            "mapped files in memory",
            [_file(one) for one in found.files[:rows] if int(one["rss_bytes"]) >= 1 << 20],
        ),
        ("lines of Python code that hold the most", [_site(one) for one in (found.sites or [])[:rows]]),
    ):
        if body:
            told += ["", title, *(f"  {line}" for line in body)]
    if found.cuda:
        amounts = (found.cuda.get(f"{name}_bytes", 0) for name in ("allocated", "reserved", "peak"))
        told += ["", "CUDA: allocated {}, reserved {}, peak {}".format(*map(format_bytes, amounts))]
    return [*told, *(f"note: {note}" for note in found.notes)]


def brief(found: Attribution) -> str:
    """In one line: `... | anon 412 MB: optimizer state 84 MB, parameters 42 MB, the rest 230 MB`."""
    held: dict[str, int] = {}
    for of in found.kinds:
        if of["where"] == "anon":
            held[_WORDS[of["kind"]]] = held.get(_WORDS[of["kind"]], 0) + of["resident_bytes"]
    ranked = sorted(held.items(), key=lambda item: -item[1])
    parts = [f"{name} {format_bytes(size)}" for name, size in ranked if size >= 1 << 16]
    if found.unexplained_bytes is not None:
        parts.append(f"the rest {format_bytes(found.unexplained_bytes)}")
    total = "unknown" if found.anon_bytes is None else format_bytes(found.anon_bytes)
    when = " ".join(str(found.facts[key]) for key in ("when", "step") if found.facts.get(key) is not None)
    return f"[mem] who holds it, {when or 'now'} | anon {total}: {', '.join(parts)}"


def _head(found: Attribution) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in found.facts.items())
    amounts = [
        f"{name} {format_bytes(amount)}"
        for name, amount in (
            ("anon", found.anon_bytes), ("mapped files", found.file_bytes), ("shared", found.shmem_bytes),
        )
        if amount is not None
    ]  # fmt: skip
    return f"process {found.pid}{f' ({facts})' if facts else ''}: {', '.join(amounts) or 'memory unknown'}"


def _sums(found: Attribution) -> list[str]:
    told = []
    for of in found.kinds:
        where = _PLACES.get(of["where"], f" ({of['where']})")
        size, held = of["bytes"], of["resident_bytes"]
        untouched = f", {format_bytes(size - held)} more never touched" if size - held >= 1 << 20 else ""
        told.append(_row(held, f"{_WORDS.get(of['kind'], of['kind'])}, {of['count']:,}{where}{untouched}"))
    if found.unexplained_bytes is not None:
        told.append(_row(found.unexplained_bytes, "not found in tensors, arrays and large objects; of it:"))
        told += [
            "  " + _row(of["bytes"], of["owner"])
            for of in sorted(found.likely, key=lambda of: -int(of["bytes"]))
        ]
    return told


def _row(size: int, words: str) -> str:
    return f"{format_bytes(size):>9}  {words}"


def _large(one: dict[str, Any]) -> str:
    held = one["bytes"] if one["resident_bytes"] is None else one["resident_bytes"]
    of = "" if held == one["bytes"] else f" of {format_bytes(one['bytes'])}"
    where = "" if one["where"] == "anon" else f", {one['where']}"
    return f"{_row(held, one['name'])}{of} ({one['what']}{where})"


def _modules(found: Attribution, rows: int) -> list[str]:
    told = []
    for of in found.modules[:rows]:
        parts = [f"{name} {format_bytes(of[name])}" for name in _WORDS if of.get(name)]
        told.append(f"{_row(of['bytes'], of['module'])}: {', '.join(parts)}")
    return told


def _types(found: Attribution) -> list[str]:
    by_type = found.objects.get("by_type") or {}
    return [_row(size, name) for name, size in list(by_type.items())[:4] if size >= 1 << 20]


def _file(one: dict[str, Any]) -> str:
    own = (
        f", {format_bytes(one['anon_bytes'])} of it the process's own" if one["anon_bytes"] >= 1 << 20 else ""
    )
    return f"{_row(one['rss_bytes'], one['path'])} ({format_bytes(one['mapped_bytes'])} mapped{own})"


def _site(one: dict[str, Any]) -> str:
    return f"{_row(one['bytes'], one['site'])} ({one['blocks']:,} blocks)"
