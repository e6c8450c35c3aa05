"""`python -m analysis live STUDY`: a page that follows the runs as they go."""

from __future__ import annotations

import argparse
import getpass
import json
import os

from analysis.columns import y_column
from analysis.commands.shared import as_typed, new_parser, study_of
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

EXAMPLES = """\
examples:
  python -m analysis live lr_sweep
  python -m analysis live lr_sweep --port 8765 --where model=64d --every 5

It serves on 127.0.0.1 alone; the token in the address keeps others on a shared login node out. From your own
machine: the line with ssh that it prints, then the same address. Ctrl-C ends it."""
_LEAST_S, _MOST_S = 1.0, 3600.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(
        subparsers,
        "live",
        "a page on 127.0.0.1 that follows running jobs: state, losses, time left, memory",
        EXAMPLES,
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: any that is free")
    parser.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds between looks (10)")
    parser.add_argument("--json", action="store_true", help="the address as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve it until Ctrl-C.

    Raises:
        UserError: there is no such study, or the port cannot be had.
    """
    from analysis.live.follower import Follower
    from analysis.live.server import Server

    if not _LEAST_S <= options.every <= _MOST_S:
        raise UserError(f"--every {options.every:g}: expected {_LEAST_S:g} to {_MOST_S:g} seconds")
    first = study_of(options, with_curves=True)
    x = first.column(options.x) if options.x else None
    y = y_column(first, options.y)
    follower = Follower(lambda: study_of(options), as_typed(options), options.every, x, y)
    follower.refresh()
    with Server(follower, options.port) as server:
        _announce(server.address, server.port, first.path, len(first.runs), as_json=options.json)
        server.serve_forever()
    return DONE


def _announce(address: str, port: int, study: str, runs: int, *, as_json: bool) -> None:
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{os.uname().nodename}"
    if as_json:
        print(json.dumps({"version": 1, "address": address, "port": port, "tunnel": tunnel}), flush=True)
        return
    print(f"following {study}: {counted(runs, 'run')}\n")
    print(f"  open       {address}")
    print(f"  elsewhere  {tunnel}   then the same address there\n")
    print(
        "Ctrl-C ends it. Who has the address can read the study: hand it on as you would a password.",
        flush=True,
    )
