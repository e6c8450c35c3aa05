"""The user's cache folder, for what cannot be stored next to tokens."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """$XDG_CACHE_HOME/highwater, or ~/.cache/highwater (XDG Base Directory Specification).

    Returns:
        None for a user without a home.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "highwater"
    except RuntimeError:
        return None
