"""What a run of loading.py is summed up to: rows, ratios of one round, goals."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks.environment import summary
from benchmarks.loading_parts.loaders import BOUND_BYTES, BOUNDED, OURS, PREAD, REPLACED

if TYPE_CHECKING:
    from benchmarks.loading import Bench

Shape = tuple[int, int]
_MB = 1 << 20
_WANTED = {
    (1024, 32): {"best peer": 2.0, REPLACED: 4.0, "floor": 0.7},
    (128, 256): {REPLACED: 25.0, "floor": 0.8},
}
"""Ratios of speed, at least."""


def result(
    options: argparse.Namespace,
    bench: Bench,
    rounds: list[dict[Shape, dict[str, Any]]],
    with_workers: dict[Shape, dict[str, Any]],
    memory: dict[str, Any],
    cold: dict[Shape, dict[str, Any]],
    pairs: list[dict[str, Any]],
) -> dict[str, Any]:
    """What is saved."""
    is_peer = {one.name for one in bench.loaders if one.is_peer}
    speed = [
        *(row for shape in rounds[0] for row in _speed(shape, 0, [one[shape] for one in rounds])),
        *(row for shape, one in with_workers.items() for row in _speed(shape, 2, [one])),
    ]
    memory_rows = [_memory(name, one) for name, one in memory.items()]
    cold_rows = [_cold(shape, name, one) for shape, by_name in cold.items() for name, one in by_name.items()]
    return {
        "provisional": options.provisional,
        "tokens": 1 << options.tokens,
        "rounds": len(rounds),
        "memory_batches": options.memory_batches,
        "bound_bytes": BOUND_BYTES,
        "peers": bench.versions(),
        "left_out": bench.left_out,
        "speed": speed,
        "memory": memory_rows,
        "cold": cold_rows,
        "against_floor": pairs,
        "goals": goals(speed, memory_rows, cold_rows, pairs, is_peer),
    }


def _speed(shape: Shape, workers: int, rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each loader that was there in all rounds, the fastest first."""
    names = [name for name in rounds[0] if all(name in found for found in rounds)]
    rows = [
        {
            "seq_len": shape[0],
            "batch_size": shape[1],
            "workers": workers,
            "loader": name,
            "million_tokens_s": summary([found[name]["tokens_s"] / 1e6 for found in rounds]),
            "ours_over_this": summary(
                [found[OURS]["tokens_s"] / found[name]["tokens_s"] for found in rounds]
            ),
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: -row["million_tokens_s"]["median"])


def _memory(name: str, found: dict[str, Any]) -> dict[str, Any]:
    growth = {key: round(value / _MB, 2) for key, value in found["growth_bytes"].items()}
    growth["peak of VmRSS"] = round(found["peak_growth_bytes"] / _MB, 2)
    return {"loader": name, "batches": found["batches"], "growth_mb": growth}


def _cold(shape: Shape, name: str, found: dict[str, Any]) -> dict[str, Any]:
    useful = found["read_batches"] * shape[0] * shape[1] * 2
    return {
        "seq_len": shape[0],
        "batch_size": shape[1],
        "loader": name,
        "batches": found["read_batches"],
        "million_tokens_s": round(found["tokens_s"] / 1e6, 2),
        "read_over_useful": round(found["read_bytes"] / useful, 2),
    }


def goals(
    speed: list[dict[str, Any]],
    memory: list[dict[str, Any]],
    cold: list[dict[str, Any]],
    pairs: list[dict[str, Any]],
    peers: set[str],
) -> list[dict[str, Any]]:
    """What was wanted, what was measured, whether that is enough."""
    found = []
    for shape, wanted in _WANTED.items():
        title = f"{shape[0]} x {shape[1]}"
        rows = [row for row in speed if (row["seq_len"], row["batch_size"], row["workers"]) == (*shape, 0)]
        ratios = {row["loader"]: row["ours_over_this"]["median"] for row in rows}
        best = min((ratio for name, ratio in ratios.items() if name in peers), default=None)
        if best is not None and "best peer" in wanted:
            found.append(_at_least(f"{title}, ours / the best peer", best, wanted["best peer"], "times"))
        found.append(
            _at_least(f"{title}, ours / the replaced system", ratios[REPLACED], wanted[REPLACED], "times")
        )
        for row in pairs:
            if (row["seq_len"], row["batch_size"], row["reader"]) == (*shape, "mmap"):
                share = row["share_of_floor"]["median"]
                found.append(
                    _at_least(f"{title}, share of the floor, {row['pages']}", share, wanted["floor"], "times")
                )
    growth = {row["loader"]: row["growth_mb"] for row in memory}
    found += [
        _at_most("RSS of pread", growth[PREAD]["VmRSS"], 8, "MB"),
        _at_most("RssAnon of pread", growth[PREAD]["RssAnon"], 0.5, "MB"),
        *(
            _at_most(f"highest RSS, {name}", one["peak of VmRSS"], BOUND_BYTES / _MB, "MB")
            for name, one in growth.items()
            if name.startswith(BOUNDED)
        ),
    ]
    for row in cold:
        if row["loader"] in (OURS, PREAD):
            what = f"{row['seq_len']} x {row['batch_size']}, cold, read / useful, {row['loader']}"
            most = 4.0 if row["seq_len"] == 1024 else None
            if most is not None:
                found.append(_at_most(what, row["read_over_useful"], most, "times"))
    return found


def _at_least(what: str, measured: float, wanted: float, unit: str) -> dict[str, Any]:
    return _goal(what, measured, f"at least {wanted:g}", unit, met=measured >= wanted)


def _at_most(what: str, measured: float, wanted: float, unit: str) -> dict[str, Any]:
    return _goal(what, measured, f"at most {wanted:g}", unit, met=measured <= wanted)


def _goal(what: str, measured: float, wanted: str, unit: str, *, met: bool) -> dict[str, Any]:
    return {"what": what, "measured": round(measured, 2), "wanted": wanted, "unit": unit, "met": met}
