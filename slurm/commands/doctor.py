"""`python -m slurm doctor`: what this cluster has, its limits, what will not work, and what to do."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.display import table
from experiment_utils.errors import Problem, UserError
from experiment_utils.modules import IS_INSTALLED
from experiment_utils.quantities import counted, format_duration
from experiment_utils.typed_here import wrap
from memory import format_bytes
from slurm.cluster import Cluster, read_cluster
from slurm.cluster.findings import FAILS, FINE, MIND, Finding, findings
from slurm.cluster.site_file import site_file

CONF = Path(__file__).resolve().parents[2] / "conf"
EXAMPLES = """examples:
  python -m slurm doctor                  # on a login node of the cluster
  python -m slurm doctor --json
  python -m slurm doctor --runs-dir /scratch/me/runs
  python -m slurm doctor --write          # conf/slurm/mine.yaml for this cluster: slurm=mine
  python -m slurm doctor --write lab --config-dir DIR     # DIR/slurm/lab.yaml

exit status: 0 all is well, or works with care; 1 something cannot work here
"""
_MARKS = {FAILS: "fails", MIND: "mind", FINE: "ok"}


def add_parser(subparsers: Any) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "doctor",
        help="what this cluster has, its limits, what will not work and what to do about it",
        description="What this cluster has, its limits, what will not work and what to do about it. It asks "
        "sinfo, scontrol, sacctmgr and sacct, and changes nothing on the cluster.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--runs-dir", type=Path, help="where runs are to go (default: HIGHWATER_RUNS_DIR, else runs)"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.add_argument(
        "--write", nargs="?", const="mine", metavar="NAME", help="write a site file, slurm=NAME (mine)"
    )
    parser.add_argument(
        "--config-dir", type=Path, default=CONF, metavar="DIR", help="of --write: DIR/slurm/NAME.yaml"
    )
    parser.add_argument("--overwrite", action="store_true", help="of --write: replace the file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what was found, or write a site file; 1 if something cannot work.

    Raises:
        UserError: the site file cannot be written.
    """
    cluster = read_cluster()
    if options.write is not None:
        if IS_INSTALLED and options.config_dir == CONF:
            what = "an installed package is not written to: name a folder of yours, as in --config-dir sites"
            raise UserError(Problem("--config-dir", what, "config-dir-installed"))
        print("\n".join(write_site(cluster, options.write, options.config_dir, options.overwrite)))
        return 0
    runs_dir = options.runs_dir or Path(os.environ.get("HIGHWATER_RUNS_DIR") or "runs")
    found = findings(cluster, runs_dir.expanduser())
    if options.json:
        plain = {"cluster": cluster.to_json(), "findings": [dataclasses.asdict(one) for one in found]}
        print(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        print("\n".join(render(cluster, found, shutil.get_terminal_size((110, 24)).columns)))
    return 1 if any(one.level == FAILS for one in found) else 0


def write_site(cluster: Cluster, name: str, config_dir: Path, overwrite: bool) -> Iterator[str]:
    """Write DIR/slurm/NAME.yaml; yields lines for a terminal.

    Raises:
        UserError: no cluster answered, the name is not one, or the file exists and is not to be replaced.
    """
    if not cluster.is_here:
        raise UserError(f"--write: no cluster answered: {'; '.join(cluster.notes)}. Type it on a login node")
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise UserError(f"--write: expected a name of letters, digits, _ and -, got `{name}`")
    path = config_dir.expanduser() / "slurm" / f"{name}.yaml"
    if path.exists() and not overwrite:
        raise UserError(f"--write: {path} exists. Another name: --write NAME; replace it: --overwrite")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_text(path, site_file(cluster, name))
    elsewhere = "" if config_dir == CONF else f"--config-dir {config_dir} "
    yield f"wrote {path}. Read it, and set what your runs need"
    yield f"next: python experiments.py -m {elsewhere}slurm={name} hydra/launcher=slurm plan=true"


def render(cluster: Cluster, found: list[Finding], columns: int = 110) -> Iterator[str]:
    """Lines for a terminal of this width."""
    if cluster.partitions:
        yield from _table(cluster)
        yield ""
    rows, width = [], min(120, columns) - max((len(one.name) for one in found), default=0) - 9
    for one in found:
        first, *more = [*wrap(one.what, width), *(wrap(f"-> {one.do}", width) if one.do else [])]
        rows += [(_MARKS[one.level], one.name, first), *(("", "", line) for line in more)]
    yield from table((), rows)
    yield ""
    if any(one.level == FAILS for one in found):
        yield "next: fix what fails, then python -m slurm doctor"
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
