"""What a run of tokenizing.py is summed up to: rows, ratios of one round, ceilings, goals."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.environment import summary
from benchmarks.tokenizing_parts import peers_venv
from benchmarks.tokenizing_parts.tools import DEFAULT, GIGATOKEN, TOOLS, Tool
from benchmarks.tokenizing_parts.whole_command import MEMORY_WORDS, Measured

MIX = "mix"
START_BYTES = 10**6
ENGINES = {"fastokens": DEFAULT, "gigatoken": GIGATOKEN}
_GOALS_MB_S = {"200 MB": 60, "1 GB": 100}
_CEILING_GOAL = 0.8
_PEERS = [
    "datasets",
    "datatrove",
    "fastokens",
    "gigatoken",
    "litdata",
    "tiktoken",
    "tokenizers",
    "transformers",
]


def result(
    options: argparse.Namespace,
    facts: dict[str, Any],
    python: Path,
    texts: dict[str, Path],
    kinds: dict[str, Path],
    starts: dict[str, Measured],
    rounds: list[dict[str, Any]],
    exact: dict[str, Any],
) -> dict[str, Any]:
    """What is saved; every figure of a peer beside the ratio to ours in the same round."""
    corpora_facts = {**kinds, MIX: texts["all"]}
    rows = []
    for name in corpora_facts:
        for tool in TOOLS:
            if tool.name in rounds[0][name]:
                path = texts[tool.size] if name == MIX else kinds[name]
                rows.append(_row(name, tool, text_bytes(path), starts, rounds))
    return {
        "provisional": options.provisional,
        "what": "whole commands, GPT-2, cold process, warm page cache; medians over the rounds",
        "memory": MEMORY_WORDS,
        "workers": len(os.sched_getaffinity(0)),
        "rounds": options.rounds,
        "corpora": facts,
        "text_bytes": {name: text_bytes(path) for name, path in corpora_facts.items()},
        "peers": peers_venv.versions(python, _PEERS) | _megatron_commit(options.megatron),
        "rows": rows,
        "ceiling": [_ceiling(name, engine, rounds) for name in corpora_facts for engine in ENGINES],
        "exactness": exact,
        "goals": goals(rows, rounds),
    }


def _row(
    name: str, tool: Tool, size: int, starts: dict[str, Measured], rounds: list[dict[str, Any]]
) -> dict[str, Any]:
    taken = [found[name][tool.name] for found in rounds]
    row = {
        "corpus": name,
        "tool": tool.name,
        "text_bytes": size,
        "mb_s": summary([size / 1e6 / one.wall_s for one in taken]),
        "wall_s": summary([one.wall_s for one in taken]),
        "cpu_s": summary([one.cpu_s for one in taken]),
        "start_s": starts[tool.name].wall_s,
        "peak_memory_bytes": max(one.peak_bytes for one in taken),
    }
    for ours in (DEFAULT, GIGATOKEN):
        if not tool.is_ours:
            row[f"{ours} / this"] = summary([_speed_ratio(found, name, ours, tool, size) for found in rounds])
            row[f"{ours} / this, both without their start"] = _without_start(
                name, ours, tool, size, starts, rounds
            )
    return row


def _speed_ratio(found: dict[str, Any], name: str, ours: str, tool: Tool, size: int) -> float:
    """How many times faster ours was in the same round, as bytes a second."""
    return (found[name][tool.name].wall_s / size) / (found[name][ours].wall_s / found["bytes"][name])


def _without_start(
    name: str, ours: str, tool: Tool, size: int, starts: dict[str, Measured], rounds: list[dict[str, Any]]
) -> float | None:
    """The same ratio of what came after the first megabyte; None where the start was all of it."""

    def seconds_a_byte(which: str, text_bytes: int) -> float:
        wall = statistics.median(found[name][which].wall_s for found in rounds)
        return (wall - starts[which].wall_s) / (text_bytes - START_BYTES)

    this, that = seconds_a_byte(tool.name, size), seconds_a_byte(ours, rounds[0]["bytes"][name])
    return round(this / that, 2) if this > 0 and that > 0 else None


def _ceiling(name: str, engine: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    bare = [found[name][f"bare {engine}"] for found in rounds]
    ours = [found[name][ENGINES[engine]] for found in rounds]
    return {
        "corpus": name,
        "engine": engine,
        "bare_mb_s": summary([one["bytes"] / 1e6 / one["wall_s"] for one in bare]),
        "ours_share_of_it": summary(
            [one["wall_s"] / command.wall_s for one, command in zip(bare, ours, strict=True)]
        ),
        "ours_share_of_it_by_cpu": summary(
            [one["cpu_s"] / command.cpu_s for one, command in zip(bare, ours, strict=True)]
        ),
    }


def goals(rows: list[dict[str, Any]], rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was wanted, what was measured, whether that is enough."""
    found = []
    for row in (row for row in rows if row["corpus"] == MIX):
        tool = next(tool for tool in TOOLS if tool.name == row["tool"])
        for ours, wanted in tool.at_least.items():
            ratio = row[f"{ours} / this"]["median"]
            found.append(_goal(f"{ours} / {tool.name}, mix", ratio, wanted, "times"))
    for row in rows:
        if row["tool"] == DEFAULT:
            wanted = _GOALS_MB_S["1 GB" if row["corpus"] == MIX else "200 MB"]
            found.append(_goal(f"ours, {row['corpus']}", row["mb_s"]["median"], wanted, "MB/s"))
    share = _ceiling(MIX, "fastokens", rounds)["ours_share_of_it"]["median"]
    return [*found, _goal("ours / the bare engine, mix", share, _CEILING_GOAL, "times")]


def _goal(what: str, measured: float, wanted: float, unit: str) -> dict[str, Any]:
    return {
        "what": what,
        "measured": round(measured, 2),
        "wanted": wanted,
        "unit": unit,
        "met": measured >= wanted,
    }


def text_bytes(path: Path) -> int:
    """Of the documents alone, as every tool encodes them."""
    separator = len(b"<|endoftext|>\n")
    with open(path.with_suffix(".jsonl"), "rb") as lines:
        documents = sum(1 for _ in lines)
    return path.with_suffix(".txt").stat().st_size - separator * (documents - 1)


def _megatron_commit(checkout: Path | None) -> dict[str, str]:
    if checkout is None:
        return {}
    done = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    named = checkout / "COMMIT"
    return {"megatron-lm": named.read_text().strip() if named.exists() else done.stdout.strip() or "unknown"}
