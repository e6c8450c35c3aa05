"""Commands in messages, as they are typed in the current folder and environment.

Messages write `python -m ROOM ...`, `python experiments.py ...` and `python pretokenize_dataset.py ...`,
which work in the checkout with its environment active. Elsewhere `python -m memory` can be a memory.py of the
user's, so each is printed as what runs this program there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_ROOMS = "memory|data_loading|training|slurm|analysis"
_COMMAND = re.compile(
    rf"(?<![\w/.-])python(?:(\s+)-m(?=\s+(?:{_ROOMS})(?![\w.]))|(\s+)(experiments|pretokenize_dataset)\.py)"
)

_WHOLE = re.compile(
    rf"(?<![\w/.-])python (?:-m (?:{_ROOMS})|(?:experiments|pretokenize_dataset)\.py)(?![\w.])"
    r".*?(?=[;.] | \(|$)"
)
"""A command to its end in a sentence."""


def as_typed_here(text: str) -> str:
    """The text, with each command as it is typed in the current folder and environment."""
    if "python" not in text or ROOT.parent.name == ".snapshots":
        return text  # what runs in a job is a copy of the code, not what a user types
    return _COMMAND.sub(_replaced, text)


def wrap(text: str, columns: int, *, initial_indent: str = "", subsequent_indent: str = "") -> list[str]:
    """The text in lines of at most `columns` characters; a command in it stays on one line, however long."""
    whole = _WHOLE.sub(lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        whole,
        columns,
        initial_indent=initial_indent,
        subsequent_indent=subsequent_indent,
        break_long_words=whole == text,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def _replaced(found: re.Match[str]) -> str:
    if found[3] is None:
        return _room_command(found[1])
    script = f"{found[3]}.py"
    return f"{_python()}{found[2]}{script if _in_a_checkout() else shlex.quote(str(ROOT / script))}"


def _room_command(space: str) -> str:
    """Text before the name of a room."""
    if _in_a_checkout():
        return f"{_python()}{space}-m"
    console = str(Path(sys.executable).with_name("highwater"))
    if str(ROOT) in sys.path[1:] and os.access(console, os.X_OK):
        return "highwater" if shutil.which("highwater") == console else shlex.quote(console)
    return f"{_python()}{space}{shlex.quote(str(ROOT / 'highwater.py'))}"


def _in_a_checkout() -> bool:
    """Whether `python -m ROOM` runs this program in the current folder."""
    return all(
        Path(name).is_file() for name in ("highwater.py", "experiments.py", "experiment_utils/typed_here.py")
    )


def _python() -> str:
    """The Python that runs this, as it is typed here."""
    found = shutil.which("python")
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return "python"
    inside = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if inside.startswith("..") else inside)


class TypedHere:
    """A text stream that prints commands as they are typed here."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._stream.write(as_typed_here(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_as_typed_here() -> None:
    """Have standard output and standard error of this process print commands as they are typed here."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, TypedHere):
            setattr(sys, name, TypedHere(stream))
