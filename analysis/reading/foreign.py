"""CSVs that other programs wrote: the last row of each, and facts that its name tells."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from analysis.reading.dialect import twice
from analysis.reading.tail import read_tail
from conf import UserError

FILE_FACT = "file"
_PART = re.compile(r"\{(\w+)\}|(\*)")


class Pattern:
    """`{model}_lr_{log10_lr}.csv`: a name in braces is a fact, `*` is anything. `log10_lr` also gives `lr`.

    Raises:
        UserError: it names no fact, or one twice.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names = [match[1] for match in _PART.finditer(text) if match[1]]
        if not names or len(set(names)) < len(names):
            raise UserError(
                f"--pattern {text}: expected names in braces, each once, such as "
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
                if not isinstance(value, float | int):
                    return None
                found[fact.removeprefix("log10_")] = 10.0**value
        return found


def read_foreign(path: Path, pattern: Pattern | None) -> tuple[dict[str, Any] | None, str | None]:
    """(column to value of the last whole row and the facts of the name, None), or (None, why not)."""
    facts: dict[str, Any] | None = {}
    if pattern is not None:
        facts = pattern.facts(path.name)
        if facts is None:
            return None, f"its name is not of the pattern {pattern.text}"
    try:
        tail = read_tail(path, is_foreign=True)
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    if not any(tail.columns):
        return None, "it is empty"
    if (name := twice([*tail.columns])) is not None:
        return None, f"two of its columns are called {name}"
    if tail.row is None:
        return None, "it has no whole row below its header"
    row = {name: _typed(text) for name, text in zip(tail.columns, tail.row, strict=True) if name}
    return {FILE_FACT: path.name, **row, **(facts or {})}, None


def _typed(text: str) -> Any:
    """A number where it reads as one, None where it is blank."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if math.isfinite(value) and value == int(value) and "e" not in text.lower() else value
