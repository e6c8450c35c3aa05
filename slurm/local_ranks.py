"""Run a run folder as several ranks on this machine, each under its supervisor, as srun does on a cluster.

    python slurm/local_ranks.py RUN_FOLDER --ranks 2

Signals are passed on to all ranks. If one fails, the others end by themselves (`training.distributed.watch`).
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Variables that torchrun sets, for ranks that are all on this host."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    found = {name: str(number) for name, number in numbers.items()}
    return {**found, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def free_port() -> int:
    """A port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(folder: Path, ranks: int, *, quiet: bool) -> int:
    """Start all ranks and wait for them; returns the exit code of rank 0, or else of one that failed."""
    from slurm.launch.processes import Children, run_command

    port, codes = free_port(), dict[int, int]()
    with Children(slots=ranks, shares_cores=False) as children:
        for rank in range(ranks):  # in the slot of the same number
            os.environ.update(environment_of(rank, ranks, port))
            children.start(run_command(folder, quiet=quiet), quiet=False)
        for _ in range(ranks):
            child = children.wait()
            codes[child.slot] = child.exit_code
    return codes[0] or next((code for code in codes.values() if code), 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="slurm/local_ranks.py",
        description="Run a run folder on several processes of this machine.",
    )
    parser.add_argument("folder", type=Path, help="the run folder, with its config.yaml")
    parser.add_argument("--ranks", type=int, required=True, help="how many processes")
    parser.add_argument("--quiet", action="store_true", help="write to log.txt only")
    options = parser.parse_args()
    sys.path[0] = str(ROOT)
    return run(options.folder, options.ranks, quiet=options.quiet)


if __name__ == "__main__":
    sys.exit(main())
