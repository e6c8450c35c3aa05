"""`python -m memory stacks RUN`: what a running or stalled run is doing right now."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import asdict
from pathlib import Path

from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_bytes
from memory.record.process_stacks import ProcessStacks, ask_all
from memory.show.find_live import Live, find_live, rank_folder

EXAMPLES = """\
examples:
  python -m memory stacks runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m memory stacks 1a2b3c4d
  python -m memory stacks mem          # of `python -m memory run --output mem -- ...`

Type it on the host of the run (under Slurm: srun --overlap --jobid=ID ...). The run is not stopped. The
request is a signal: a sleep or a system call in C code that does not retry can end early with EINTR.
A process that does not answer is shown by py-spy if that is installed, else as the kernel sees it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "stacks",
        help="what a running or stalled run is doing: Python stacks of all its processes",
        description="What a running or stalled run is doing: the Python stacks of all its processes.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", help="path, name below runs_dir, or beginning of an identity"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the processes of all ranks on this host, and print their answers.

    Raises:
        UserError: the run does not run, or not on this host.
    """
    folder = find_run(options.run_folder)
    ranks = _ranks(folder)
    found = {
        rank: ask_all(live.pid, str(rank_folder(folder, rank).absolute()), live.attempt)
        for rank, live in ranks.items()
        if live.is_here
    }
    if not any(found.values()):
        raise UserError(_elsewhere(folder, ranks.get(0)), code="not-running-here")
    if options.json:
        host = next(live.host for live in ranks.values() if live.is_here)
        processes = [{"rank": rank} | asdict(one) for rank, of_rank in found.items() for one in of_rank]
        print(json.dumps({"run": str(folder), "host": host, "processes": processes}, indent=2))
        return 0
    for rank, of_rank in found.items():
        for one in of_rank:
            print(f"rank {rank}, " * (len(ranks) > 1) + "\n".join(_lines(one)), end="\n\n")
    for rank, live in ranks.items():
        if live.is_elsewhere:
            print(f"rank {rank} runs on {live.host}, process {live.pid}: type this command there as well")
    print(f"Does it move? Repeat in a while. Its memory: python -m memory watch {shlex.quote(str(folder))}")
    return 0


def _ranks(folder: Path) -> dict[int, Live]:
    """Process of rank 0, and those of the other ranks of its attempt that have not ended."""
    numbers = [0, *sorted(int(path.name[4:]) for path in folder.glob("rank*") if path.name[4:].isdigit())]
    known = {rank: live for rank in numbers if (live := find_live(rank_folder(folder, rank))) is not None}
    newest = max((live.attempt for live in known.values()), default=1)
    return {
        rank: live
        for rank, live in known.items()
        if rank == 0 or (live.attempt == newest and (live.is_here or live.is_elsewhere))
    }


def _lines(one: ProcessStacks) -> list[str]:
    held = "" if one.anon_bytes is None else f", anon {format_bytes(one.anon_bytes)}"
    lines = [f"process {one.pid} {one.name}{held}: {one.command}"]
    if one.stacks is not None:
        return lines + [f"  {line}" for line in one.stacks.splitlines()]
    lines.append(f"  no Python stacks: {one.why}")
    return lines + [f"  {key.replace('_', ' ')}: {value}" for key, value in one.kernel.items()]


def _elsewhere(folder: Path, live: Live | None) -> str:
    if live is None:
        return f"{folder}: no process of this run is known, so it has not started. Start it, then ask again"
    if live.is_elsewhere:
        return (
            f"{folder} runs on {live.host}, process {live.pid}. Type this command on {live.host}, under "
            "Slurm with srun --overlap --jobid=ID"
        )
    again = f"python -m memory explain {shlex.quote(str(folder))}"
    return f"{folder} does not run: process {live.pid} on {live.host} has ended. How it ended: {again}"
