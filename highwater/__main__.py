"""`highwater COMMAND ...`: all commands, from any folder and around any job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__" and not __package__:  # python PATH/highwater, in any folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from highwater import room

COMMANDS = {
    "run": ("experiments", (), (), "train one configuration: highwater run model=32d"),
    "sweep": ("experiments", ("-m",), (), "train every combination: highwater sweep seed=0,1"),
    "plan": ("experiments", (), ("plan=true",), "what would run, and what it costs"),
    "tokenize": ("pretokenize_dataset", (), (), "a text to a token set"),
    "status": ("slurm", ("status",), (), "the states of a study's runs"),
    "watch": ("slurm", ("watch",), (), "the same, live"),
    "why": ("slurm", ("why",), (), "why a run ended as it did"),
    "logs": ("slurm", ("logs",), (), "what a run printed"),
    "report": ("analysis", ("report",), (), "a page of a study's results"),
    "stale": ("analysis", ("stale",), (), "the runs of a study that a change of the code has outdated"),
}
"""Command to its module, the words before and after those of the user, and what it does."""

ROOMS = {
    "memory": "where the memory is, why a run died, whether the next one fits",
    "data_loading": "datasets: which there are, and what is in them",
    "training": "what a trained model says, and how good it is on any tokens",
    "slurm": "what became of a study's runs, and what to do about it",
    "analysis": "the table of a study's runs",
}
"""Packages with commands of their own; none is imported before it is asked for."""

_HELP = """usage: highwater COMMAND ...

{commands}

commands of one package, each with --help:
{rooms}

examples:
  highwater run model=32d
  highwater memory run --output mem -- python train.py
  highwater status lr_sweep
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in ([], ["-h"], ["--help"]):
        return _print_help()
    name, rest = given[0], given[1:]
    if name == "--version":
        import highwater

        print(f"highwater {highwater.__version__}")
        return 0
    if name in COMMANDS:
        module, before, after, _ = COMMANDS[name]
        words = [*before, *rest, *(after if not {"-h", "--help"} & {*rest} else ())]
        face = module if module in ("experiments", "pretokenize_dataset") else f"{module}.__main__"
        return int(room(face).main(words))
    if name in ROOMS:
        return int(room(f"{name}.__main__").main(rest))
    choices = ", ".join([*COMMANDS, *ROOMS])
    print(f"error: highwater {name}: no such command: expected one of {choices}", file=sys.stderr)
    return 2


def _print_help() -> int:
    """Its exit status; as experiment_utils/exit_status.py ends, which is not loaded for a screen of words."""
    try:
        print(_help(), end="", flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # else the reader, `head` say, has seen enough
            print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again at its end
        return 1
    return 0


def _help() -> str:
    width = max(map(len, [*COMMANDS, *ROOMS]))
    commands = "\n".join(f"  {name:<{width}}  {what}" for name, (*_, what) in COMMANDS.items())
    rooms = "\n".join(f"  {name:<{width}}  {what}" for name, what in ROOMS.items())
    return _HELP.format(commands=commands, rooms=rooms)


if __name__ == "__main__":
    sys.exit(main())
