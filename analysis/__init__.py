"""From run folders to answers: pages, pictures, tables, fits; `read_study` gives them as data.

It loads no torch, and `import analysis` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.notebook import read_study as read_study

__all__ = ["read_study"]


def __getattr__(name: str) -> Any:
    if name != "read_study":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analysis.notebook import read_study

    return read_study
