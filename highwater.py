"""`highwater ROOM ...`: the face of a room, from any folder and around any job."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

ROOMS = {
    "memory": "where the memory is, why a run died, whether the next one fits",
    "data_loading": "datasets: which there are, what is in them, how fast they are read",
    "training": "what a trained model says, and how good it is on any tokens",
    "slurm": "what became of a study's runs, and what to do about it",
    "analysis": "the table of a study's runs",
}
"""Each has a `__main__` with `main(arguments) -> int`; none is imported before it is asked for."""

COMMANDS = {"stale": ("analysis", "the runs of a study that a change of the code has outdated")}
"""Name to the room that has the command, and what it does."""

_HELP = "usage: highwater {rooms} ...\n\n{lines}\n\nexamples:\n  highwater memory\n  {first}\n  {second}\n"


def main(arguments: list[str] | None = None) -> int:
    """As `python -m ROOM` in the checkout; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in ([], ["-h"], ["--help"]):
        return _print_help()
    if given[0] in COMMANDS:
        given = [COMMANDS[given[0]][0], *given]
    if given[0] not in ROOMS:
        choices = ", ".join([*ROOMS, *COMMANDS])
        print(f"error: highwater {given[0]}: no such room: expected one of {choices}", file=sys.stderr)
        return 2
    _find_rooms_here(given[0])
    room = importlib.import_module(f"{given[0]}.__main__")
    return int(room.main(given[1:]))


def _find_rooms_here(room: str) -> None:
    """Have rooms imported from the folder of this file: a memory.py of the user's can be in PYTHONPATH."""
    here = Path(__file__).resolve().parent
    found = importlib.util.find_spec(room)
    if found is None or found.origin is None or Path(found.origin).resolve().parent.parent != here:
        sys.path.insert(0, str(here))


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
    words = {**ROOMS, **{name: what for name, (_, what) in COMMANDS.items()}}
    width = max(map(len, words))
    return _HELP.format(
        rooms="{" + ",".join(words) + "}",
        lines="\n".join(f"  {word:<{width}}  {what}" for word, what in words.items()),
        first="highwater memory run --output mem -- python train.py",
        second="highwater slurm status lr_sweep",
    )


if __name__ == "__main__":
    sys.exit(main())
