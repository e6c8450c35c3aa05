"""What the supervisor is told on its command line, and the command line that tells it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

SUPERVISOR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervisor.py")
BARE = ("-I", "-S") if sys.platform.startswith("linux") else ("-I",)
"""Where there is no /proc, psutil is asked; it lies in site-packages, which -S leaves out."""
EXPLAIN = "python -m memory explain"
_WITH_VALUE = ("--output", "--attempt", "--parent", "--tell", "--explain")
TELL = ("never", "failed", "always")


@dataclass(frozen=True)
class Options:
    """output: folder of memory.ring and outcome.json. attempt: of the run, from 1. parent: a process whose
    end asks the run to stop, and so does the supervisor's own. tell: whether a line goes to stderr when the
    command has ended; `failed`: when it failed or came near its limit. log: copy what it writes to log.txt.
    explain: the command that this line names, without the folder.
    """

    command: tuple[str, ...]
    output: str
    attempt: int = 1
    parent: int | None = None
    tell: str = "never"
    log: bool = False
    explain: str = EXPLAIN


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
    """What to start in place of `command`, so that it runs under a supervisor. See `Options`."""
    told = ["--output", os.fspath(output), "--attempt", str(attempt), "--tell", tell]
    if parent is not None:
        told += ["--parent", str(parent)]
    if log:
        told.append("--log")
    if explain != EXPLAIN:
        told += ["--explain", explain]
    return [sys.executable, *BARE, SUPERVISOR, *told, "--", *command]


def parse(arguments: Sequence[str]) -> Options:
    """The same read back. By hand: argparse alone is half a megabyte.

    Raises:
        ValueError: says what is wrong.
    """
    words = list(arguments)
    if "--" not in words or words[-1] == "--":
        raise ValueError(
            "expected --output DIR [--attempt N] [--parent PID] [--tell WHEN] [--log] -- COMMAND"
        )
    place = words.index("--")
    told, command = words[:place], words[place + 1 :]
    log = "--log" in told
    told = [word for word in told if word != "--log"]
    pairs = dict(zip(told[::2], told[1::2], strict=False))
    unknown = [word for word in told[::2] if word not in _WITH_VALUE]
    if unknown or len(told) % 2 or not pairs.get("--output"):
        raise ValueError(f"{' '.join(unknown) or 'the options'}: expected --output DIR and no unknown option")
    for name in ("--attempt", "--parent"):
        if not pairs.get(name, "1").isdigit():
            raise ValueError(f"{name} {pairs[name]}: expected a number")
    tell = pairs.get("--tell", "never")
    if tell not in TELL:
        raise ValueError(f"--tell {tell}: expected one of {', '.join(TELL)}")
    return Options(
        command=tuple(command),
        output=pairs["--output"],
        attempt=int(pairs.get("--attempt", "1")),
        parent=int(pairs["--parent"]) if "--parent" in pairs else None,
        tell=tell,
        log=log,
        explain=pairs.get("--explain", EXPLAIN),
    )
