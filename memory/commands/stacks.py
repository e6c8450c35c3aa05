"""`python -m memory stacks RUN`: what a running or stalled run is doing right now."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path

from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_bytes
from memory.record.stacks import Doing, ask_all
from memory.show.find_live import Live, find_live, rank_folder

EXAMPLES = """\
examples:
  python -m memory stacks runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m memory stacks 1a2b3c4d
  python -m memory stacks mem          # of `python -m memory run --output mem -- ...`

It is typed on the host where the run is (under Slurm: srun --overlap --jobid=ID ...). The run goes on,
neither stopped nor slowed. A process that does not answer is looked at from outside: its state, what it
waits in."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "stacks",
        help="what a running or stalled run is doing: Python stacks of all its processes",
        description="What a running or stalled run is doing: the Python stacks of all its processes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", help="path, name below runs_dir, or beginning of an identity"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, and print.

    Raises:
        UserError: the run does not run, or not on this host.
    """
    folder = find_run(options.run_folder)
    ranks = _ranks(folder)
    here = {rank: live for rank, live in ranks.items() if live is not None and live.is_here}
    if not here:
        raise UserError(_elsewhere(folder, ranks[0]), code="not-running-here")
    found = {
        rank: ask_all(live.pid, str(rank_folder(folder, rank).absolute()), live.attempt)
        for rank, live in here.items()
    }
    if not any(found.values()):
        raise UserError(
            f"{folder}: process {next(iter(here.values())).pid} has ended in this moment", code="ended"
        )
    if options.json:
        processes = [{"rank": rank} | asdict(one) for rank, of_rank in found.items() for one in of_rank]
        host = next(iter(here.values())).host
        print(
            json.dumps(
                {"run": str(folder), "host": host, "processes": processes}, indent=2, ensure_ascii=False
            )
        )
        return 0
    for rank, of_rank in found.items():
        for one in of_rank:
            print(f"rank {rank}, " * (len(ranks) > 1) + "\n".join(_lines(one)), end="\n\n")
    for rank, live in ranks.items():
        if live is not None and _runs_elsewhere(rank_folder(folder, rank), live):
            print(f"rank {rank} runs on {live.host}, process {live.pid}: type this command there as well")
    print(f"Again in a while: does it move? Its memory: python -m memory watch {shlex.quote(str(folder))}")
    return 0


def _ranks(folder: Path) -> dict[int, Live | None]:
    """The process of each rank, where more than rank 0 are known, of those that have not ended."""
    others = [int(path.name[4:]) for path in folder.glob("rank*") if path.name[4:].isdigit()]
    found = {rank: find_live(rank_folder(folder, rank)) for rank in (0, *sorted(others))}
    newest = max((live.attempt for live in found.values() if live is not None), default=1)
    return {
        rank: live
        for rank, live in found.items()
        if rank == 0
        or (
            live is not None
            and live.attempt == newest  # an earlier one may have had more of them
            and (live.is_here or _runs_elsewhere(rank_folder(folder, rank), live))
        )
    }


def _runs_elsewhere(folder: Path, live: Live) -> bool:
    return live.host != os.uname().nodename and not (folder / "outcome.json").exists()


def _lines(one: Doing) -> list[str]:
    held = "" if one.anon_bytes is None else f", anon {format_bytes(one.anon_bytes)}"
    lines = [f"process {one.pid} {one.name}{held}: {one.command}"]
    if one.stacks is not None:
        return lines + [f"  {line}" for line in one.stacks.splitlines()]
    lines.append(f"  no Python stacks: {one.why}")
    for key, value in one.kernel.items():
        shown = " < ".join(value) if isinstance(value, list) else value
        lines.append(f"  {key.replace('_', ' ')}: {shown}")
    return lines


def _elsewhere(folder: Path, live: Live | None) -> str:
    if live is None:
        return f"{folder}: no process of it is known: it has not begun. Start it, then ask again"
    if _runs_elsewhere(folder, live):
        return (
            f"{folder} runs on {live.host}, process {live.pid}: expected to be asked there. Type this "
            f"command on {live.host}, under Slurm with srun --overlap --jobid=ID"
        )
    again = f"python -m memory explain {shlex.quote(str(folder))}"
    return f"{folder} does not run: process {live.pid} on {live.host} is gone. How it ended: {again}"
