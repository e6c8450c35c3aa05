"""A run on several processes of this machine: what srun does on a cluster, and torchrun does elsewhere.

    python slurm/local_ranks.py RUN_FOLDER --ranks 2

Starts them as a job's tasks are started, each under its supervisor; passes signals on; ends as rank 0 does,
or as another that failed.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENDS_WITHIN_S = 45.0
"""After another rank has failed. By itself a rank takes less (`training.distributed.watch`)."""


def environment_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun would set, for ranks that are all here."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    told = {name: str(number) for name, number in names.items()}
    return {**told, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def run(folder: Path, ranks: int, *, quiet: bool) -> int:
    """Start them, wait for all; returns an exit code.

    When one has failed the others end by themselves (`training.distributed.watch`), or are asked to.
    """
    from slurm.launch.processes import Children, run_command

    port, codes = free_port(), dict[int, int]()
    with Children(slots=ranks, shares_cores=False) as children:
        started = []
        for rank in range(ranks):
            os.environ.update(environment_of(rank, ranks, port))
            started.append(children.start(run_command(folder, quiet=quiet), quiet=False))
        while len(codes) < ranks:
            child = children.wait()
            codes[started.index(child)] = child.exit_code
            if child.exit_code:
                left = [other.process for other in started if other.process.returncode is None]
                _ask_to_end(left)
    return codes[0] or next((code for code in codes.values() if code), 0)


def _ask_to_end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Those that are still there a while later, such as a rank that waits for one which never came."""

    def ask() -> None:
        for process in processes:
            process.terminate()

    timer = threading.Timer(ENDS_WITHIN_S, ask)
    timer.daemon = True
    timer.start()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="slurm/local_ranks.py",
        description="Run a run folder on several processes of this machine.",
    )
    parser.add_argument("folder", type=Path, help="the run folder, with its config.yaml")
    parser.add_argument("--ranks", type=int, required=True, help="how many processes")
    parser.add_argument("--quiet", action="store_true", help="write to log.txt only")
    parser.add_argument("--parent", type=int, help="checkpoint and stop when this process is gone")
    options = parser.parse_args()
    sys.path[0] = str(ROOT)
    from training.interrupt import stop_with_parent

    if options.parent is not None:
        stop_with_parent(options.parent)
    return run(options.folder, options.ranks, quiet=options.quiet)


if __name__ == "__main__":
    sys.exit(main())
