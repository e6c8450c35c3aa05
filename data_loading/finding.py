"""What holding a set against its manifest brings to light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ok: None where it cannot be told here, e.g. without the text."""

    what: str
    ok: bool | None
    told: str

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "told": self.told}
