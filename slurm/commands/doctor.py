"""`python -m slurm doctor`: what this cluster has, its limits, what will not work, and what to do."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiment_utils.display import table
from experiment_utils.quantities import counted, format_duration
from memory import format_bytes
from slurm.cluster import Cluster, read_cluster
from slurm.cluster.findings import FAILS, FINE, MIND, Finding, findings

EXAMPLES = """examples:
  python -m slurm doctor                  # on a login node of the cluster
  python -m slurm doctor --json
  python -m slurm doctor --runs-dir /scratch/me/runs

exit status: 0 all is well, or works with care; 1 something cannot work here
"""
_MARKS = {FAILS: "fails", MIND: "mind", FINE: "ok"}


def add_parser(subparsers: Any) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "doctor",
        help="what this cluster has, its limits, what will not work and what to do about it",
        description="What this cluster has, its limits, what will not work and what to do about it. It asks "
        "sinfo, scontrol, sacctmgr and sacct, and changes nothing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs-dir", type=Path, help="where runs are to go (default: HIGHWATER_RUNS_DIR, else runs)"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it; 1 where something cannot work."""
    runs_dir = options.runs_dir or Path(os.environ.get("HIGHWATER_RUNS_DIR") or "runs")
    cluster = read_cluster()
    found = findings(cluster, runs_dir.expanduser())
    if options.json:
        plain = {"cluster": cluster.to_json(), "findings": [dataclasses.asdict(one) for one in found]}
        print(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        print("\n".join(render(cluster, found)))
    return 1 if any(one.level == FAILS for one in found) else 0


def render(cluster: Cluster, found: list[Finding]) -> Iterator[str]:
    """Lines for a terminal."""
    if cluster.partitions:
        yield from _table(cluster)
        yield ""
    rows = []
    for one in found:
        rows += [(_MARKS[one.level], one.name, one.what), *([("", "", f"-> {one.do}")] if one.do else [])]
    yield from table((), rows)
    yield ""
    if any(one.level == FAILS for one in found):
        yield "next: mend what fails, then python -m slurm doctor"
    else:
        yield "next: python experiments.py -m model=32d,64d hydra/launcher=slurm plan=true"


def _table(cluster: Cluster) -> Iterator[str]:
    """The partitions: * is the default."""
    rows = [("partition", "limit", "default", "nodes", "CPUs", "memory", "GPUs of a node", "state")]
    for partition in cluster.partitions.values():
        first = (
            f"{partition.name}{'*' if partition.is_default else ''}",
            _time(partition.max_time_s),
            _time(partition.default_time_s) if partition.default_time_s is not None else "-",
        )
        state = "" if partition.is_up else "takes no jobs"
        if not partition.kinds:
            rows.append((*first, str(partition.nodes or "?"), "?", "?", "?", state))
        for kind in partition.kinds:
            gpus = ", ".join(f"{count} {name}".rstrip() for name, count in kind.gpus.items()) or "-"
            mem = format_bytes(kind.mem_bytes) if kind.mem_bytes else "?"
            row = (*first, str(kind.count), str(kind.cpus or "?"), mem, gpus, state or kind.state)
            rows.append(row)
            first = ("", "", "")
    yield from table(rows[0], rows[1:])
    nodes = sum(partition.nodes or 0 for partition in cluster.partitions.values() if partition.is_default)
    if nodes:
        yield f"default partition: {counted(nodes, 'node')}"


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else format_duration(seconds)
