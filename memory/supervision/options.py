"""Command line of the supervisor, written and read."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

SUPERVISOR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervisor.py")
EXPLAIN = "python -m memory explain"
TELL = ("never", "failed", "always")
_USAGE = "expected --output DIR [--attempt N] [--parent PID] [--tell WHEN] [--log] -- COMMAND"
_WITH_VALUE = ("--output", "--attempt", "--parent", "--tell", "--explain")


@dataclass(frozen=True)
class Options:
    """Options of one supervisor."""

    command: tuple[str, ...]
    output: str
    """Folder of memory.ring and outcome.json."""
    attempt: int = 1
    """Number of this attempt of the run, from 1."""
    parent: int | None = None
    """A process whose end asks the run to stop; the end of the supervisor does then, too."""
    tell: str = "never"
    """When a line goes to stderr at the end; `failed`: if the command failed or came near its limit."""
    log: bool = False
    """Copy what the command prints to log.txt."""
    explain: str = EXPLAIN
    """Command that this line names, without the folder."""


def command_line(
    command: Sequence[str],
    output: str | os.PathLike[str],
    *,
    attempt: int = 1,
    parent: int | None = None,
    tell: str = "never",
    log: bool = False,
    explain: str = EXPLAIN,
) -> list[str]:
    """Arguments that run `command` under a supervisor; see `Options`."""
    words = ["--output", os.fspath(output), "--attempt", str(attempt), "--tell", tell]
    if parent is not None:
        words += ["--parent", str(parent)]
    if log:
        words.append("--log")
    if explain != EXPLAIN:
        words += ["--explain", explain]
    return [sys.executable, "-I", "-S", SUPERVISOR, *words, "--", *command]


def parse(arguments: Sequence[str]) -> Options:
    """Read the arguments of `command_line` after the program; by hand, since argparse takes 0.5 MB.

    Raises:
        ValueError: an argument is missing or wrong.
    """
    words = list(arguments)
    if "--" not in words or words[-1] == "--":
        raise ValueError(_USAGE)
    place = words.index("--")
    named = [word for word in words[:place] if word != "--log"]
    pairs = dict(zip(named[::2], named[1::2], strict=False))
    unknown = [word for word in named[::2] if word not in _WITH_VALUE]
    if unknown or len(named) % 2 or not pairs.get("--output"):
        raise ValueError(f"{' '.join(unknown) or 'the options'}: expected --output DIR and no unknown option")
    for name in ("--attempt", "--parent"):
        if not pairs.get(name, "1").isdigit():
            raise ValueError(f"{name} {pairs[name]}: expected a number")
    tell = pairs.get("--tell", "never")
    if tell not in TELL:
        raise ValueError(f"--tell {tell}: expected one of {', '.join(TELL)}")
    return Options(
        command=tuple(words[place + 1 :]),
        output=pairs["--output"],
        attempt=int(pairs.get("--attempt", "1")),
        parent=int(pairs["--parent"]) if "--parent" in pairs else None,
        tell=tell,
        log="--log" in words[:place],
        explain=pairs.get("--explain", EXPLAIN),
    )
