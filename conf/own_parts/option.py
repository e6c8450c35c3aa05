"""`highwater.option`: an option of a user's own part, as a field of its dataclass."""

from __future__ import annotations

from typing import Any

from conf.schema_key import key


def option(
    default: Any,
    doc: str = "",
    *,
    kind: str | None = None,
    choices: tuple[str, ...] | None = None,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of the dataclass of options: its default, its meaning for `--help`, and its bounds.

    All arguments are literal: they are read without running the file.

    Args:
        kind: how text becomes a value: `count` (1B, 500M), `size` (32GB), `path`, `name`, `time` (2h).
        choices: the only values allowed.
    """
    return key(
        default, doc, kind=kind, choices=choices, above=above, at_least=at_least, at_most=at_most, below=below
    )
