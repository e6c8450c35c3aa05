"""One key of the schema: its type, default, bounds and meaning."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any

AUTO = "auto"
"""The value of a key whose choice is left to the program, resolved once and written to run.json."""


def key(
    default: Any,
    doc: str,
    *,
    kind: str | None = None,
    choices: tuple[str, ...] | None = None,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    as_before: Any = MISSING,
    only_with: str | None = None,
) -> Any:
    """A key of the schema.

    kind: how text becomes a value where the annotation does not say it: `count` (1B, 500M),
        `size` (32GB), `path` (~ is expanded), `name` (a part of a file name), `time` (24:00:00, 2h).
    choices: the only values allowed. Bounds are checked on numbers.
    as_before: the value of runs made before the key existed: what a saved configuration without it means, and
        left out of the identity.
    only_with: another key of the group; while that is null this one means nothing, and is left out of the
        identity.
    """
    metadata = {
        "doc": doc,
        "kind": kind,
        "choices": choices,
        "above": above,
        "at_least": at_least,
        "at_most": at_most,
        "below": below,
        "as_before": as_before,
        "only_with": only_with,
    }
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Key:
    """One setting.

    path: `optimizer.lr`, or `seed` at the top. types: what its value may be, None apart (`optional`);
    (list,) is a list of text. The rest is as `conf.schema.key` took it.
    """

    path: str
    types: tuple[type, ...]
    optional: bool
    default: Any
    doc: str
    kind: str | None
    choices: tuple[str, ...] | None
    above: float | None
    at_least: float | None
    at_most: float | None
    below: float | None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def is_text(self) -> bool:
        """True when any text is a value of it."""
        return self.types == (str,) and self.choices is None
