"""Commands in messages, as they are typed in the current folder and environment.

Messages write `python -m ROOM ...`, `python experiments.py ...` and `python pretokenize_dataset.py ...`,
which work in the checkout with its environment active. Elsewhere `python -m memory` can be a memory.py of the
user's, so each is printed as a command of `highwater`.
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

from experiment_utils.display import GLUE, QUOTED_SPACE, columns_of, fold
from experiment_utils.modules import IMPORT_ROOT, IS_INSTALLED, ROOT

_ROOMS = "memory|data_loading|training|slurm|analysis"
_COMMAND = re.compile(
    rf"(?<![\w/.-])python(?:(\s+)-m(?=\s+(?:{_ROOMS})(?![\w.]))|(\s+)(experiments|pretokenize_dataset)\.py)"
)

_COMMANDS = {"experiments": "run", "pretokenize_dataset": "tokenize"}

_WHOLE = re.compile(
    rf"(?<![\w/.-])python (?:-m (?:{_ROOMS})|(?:experiments|pretokenize_dataset)\.py)(?![\w.])"
    r".*?(?=[;.] | \(|  |`|\n|\x1b|$)"
)
"""A command to its end in a sentence."""
_QUOTED_OR_SPACE = re.compile(r"'[^']*'|\"[^\"]*\"| ")
_NOT_FOLDED = re.compile(r"\s*(?:\{|\[(?=[\s\[{\"\]]))|.*(?:\r|\x1b(?!\[[\d;]*m))", re.DOTALL)
"""JSON, and what moves the cursor."""
_SHORT = 40
"""Text that fits every terminal."""


def as_typed_here(text: str) -> str:
    """The text, with each command as it is typed in the current folder and environment."""
    if "python" not in text:
        return text
    if IMPORT_ROOT.parent.name == ".snapshots":  # what runs in a job is a copy of the code
        return as_installed(text)
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
    """`highwater slurm` or `highwater run`; in the checkout as it was written."""
    space, script = (found[1], None) if found[3] is None else (found[2], found[3])
    if _in_a_checkout():
        return f"{_python()}{space}{'-m' if script is None else f'{script}.py'}"
    command = "" if script is None else f"{space}{_COMMANDS[script]}"
    console = str(Path(sys.executable).with_name("highwater"))
    if (IS_INSTALLED or str(ROOT) in sys.path[1:]) and os.access(console, os.X_OK):
        return f"{'highwater' if shutil.which('highwater') == console else shlex.quote(console)}{command}"
    program = ROOT if IS_INSTALLED else ROOT / "highwater"
    return f"{_python()}{space}{shlex.quote(str(program))}{command}"


def as_installed(text: str) -> str:
    """The text with commands of `highwater`, without a path, if this is an installed wheel."""

    def command(found: re.Match[str]) -> str:
        return "highwater" if found[3] is None else f"highwater{found[2]}{_COMMANDS[found[3]]}"

    return _COMMAND.sub(command, text) if IS_INSTALLED else text


def _in_a_checkout() -> bool:
    """Whether `python -m ROOM` runs this program in the current folder."""
    return all(
        Path(name).is_file()
        for name in ("highwater/__main__.py", "experiments.py", "experiment_utils/typed_here.py")
    )


def _python() -> str:
    """The Python that runs this, as it is typed here."""
    found = shutil.which("python")
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return "python"
    inside = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if inside.startswith("..") else inside)


def on_screen(text: str, columns: int) -> str:
    """The text with commands as they are typed here, in lines of at most `columns` characters."""
    if _NOT_FOLDED.match(text):
        return as_typed_here(text)

    def glued(found: re.Match[str]) -> str:
        typed = as_typed_here(found[0])
        return _QUOTED_OR_SPACE.sub(
            lambda one: GLUE if one[0] == " " else one[0].replace(" ", QUOTED_SPACE), typed
        )

    marked = as_typed_here(_WHOLE.sub(glued, text))
    return "\n".join(part for line in marked.split("\n") for part in fold(line, columns))


class TypedHere:
    """A text stream that prints commands as they are typed here, in lines that fit a terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        columns = columns_of(self._stream) if len(text) > _SHORT else None
        return self.write_verbatim(text) if columns is None else self._write(on_screen(text, columns))

    def write_verbatim(self, text: str) -> int:
        """Write text whose lines are to be copied or read by programs: they are not folded."""
        return self._write(as_typed_here(text))

    def _write(self, text: str) -> int:
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_verbatim(text: str) -> None:
    """Write text whose lines are to be copied or read by programs: a script, CSV, a sample of a model."""
    getattr(sys.stdout, "write_verbatim", sys.stdout.write)(text)


def print_as_typed_here() -> None:
    """Have standard output and standard error of this process print commands as they are typed here."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, TypedHere):
            setattr(sys, name, TypedHere(stream))
