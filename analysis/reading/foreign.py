"""CSVs that other programs wrote: the last row of each, and facts that its name tells."""

from __future__ import annotations

import math
import re
import stat
from pathlib import Path
from typing import Any

from analysis.reading.dialect import twice
from analysis.reading.tail import read_tail
from conf import UserError
from memory.file_kinds import not_expected

FILE_FACT = "file"
_PART = re.compile(r"\{(\w+)\}|(\*)")
_EXACT = 2**53
"""Whole numbers beyond it are counts that a float holds as well as anything."""
_MOST_LOG10 = 300


class Pattern:
    """`{model}_lr_{log10_lr}.csv`: a name in braces is a fact, `*` is anything. `log10_lr` also gives `lr`.

    Raises:
        UserError: it names no fact, or one twice.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names = [match[1] for match in _PART.finditer(text) if match[1]]
        if not names or len(set(names)) < len(names) or not all(map(str.isidentifier, names)):
            raise UserError(
                f"--pattern {text}: expected names in braces, each once and none with a digit first, such as "
                "'{model}_lr_{log10_lr}.csv' for 64d_lr_-2.5.csv"
            )
        self.names = frozenset(names) | {name.removeprefix("log10_") for name in names}
        regex, at = "", 0
        for match in _PART.finditer(text):
            regex += re.escape(text[at : match.start()])
            regex += f"(?P<{match[1]}>.+?)" if match[1] else ".*?"
            at = match.end()
        self._regex = re.compile(regex + re.escape(text[at:]))

    def facts(self, name: str) -> dict[str, Any] | None:
        """Of a file's name; None where it is not of this pattern. What reads as a number is one."""
        match = self._regex.fullmatch(name)
        if match is None:
            return None
        found: dict[str, Any] = {fact: _typed(text) for fact, text in match.groupdict().items()}
        for fact, value in list(found.items()):
            if fact.startswith("log10_"):
                if not isinstance(value, float | int) or not abs(value) < _MOST_LOG10:
                    return None
                found[fact.removeprefix("log10_")] = 10.0**value
        return found


def writable(name: str) -> str:
    """A file's name; bytes of another encoding than UTF-8, which no text can hold, as `\\udcff`."""
    return name.encode(errors="backslashreplace").decode()


def read_foreign(path: Path, pattern: Pattern | None) -> tuple[dict[str, Any] | None, str | None]:
    """(column to value of the last whole row and the facts of the name, what was passed over for it or None);
    or (None, why not).
    """
    facts: dict[str, Any] | None = {}
    name = writable(path.name)
    if pattern is not None:
        facts = pattern.facts(name)
        if facts is None:
            return None, f"its name is not of the pattern {pattern.text}"
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            return None, "it is no file"
        if (other := not_expected(path, "a CSV table")) is not None:
            return None, other.removeprefix(f"{path} ")
        tail = read_tail(path, is_foreign=True)
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    if not any(tail.columns):
        return None, "it is empty"
    if (column := twice([*tail.columns])) is not None:
        return None, f"two of its columns are called {column}"
    if tail.row is None:
        return None, "it has no whole row below its header"
    row = {column: _typed(text) for column, text in zip(tail.columns, tail.row, strict=True) if column}
    told = f"{tail.torn} of its last lines passed over, torn or not of its columns"
    return {FILE_FACT: name, **row, **(facts or {})}, told if tail.torn else None


def _typed(text: str) -> Any:
    """A number where it reads as one, None where it is blank."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    if "_" in text:  # a number to Python alone
        return text
    is_whole = math.isfinite(value) and value == int(value) and abs(value) <= _EXACT
    return int(value) if is_whole and "e" not in text.lower() else value
