"""What an audit tells of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MEND_SET = "Copy the set again, or tokenize its text again with --overwrite"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    ok: None where it cannot be told here, e.g. without the text. mend: what to do where it is wrong; empty
    where `told` says that too.
    """

    what: str
    ok: bool | None
    told: str
    mend: str = MEND_SET

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "told": self.told}
