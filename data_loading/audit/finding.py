"""Result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Result of one check of a set or an export."""

    what: str
    """Name of the check."""
    ok: bool | None
    """None if it cannot be checked here, such as without the text."""
    message: str
    fix: str = ""
    """Advice, if it is wrong and the message has none."""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "told": self.message}
