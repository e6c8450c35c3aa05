"""How many examples a property test draws: some in the quick tests, the same each time; many in make soak."""

from __future__ import annotations

import os

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def examples(count: int) -> int:
    """count: what searches well. Most faults are found by the first few, and by what is written by hand."""
    return 2 * count if EXPLORES else min(count, 10 + count // 5)
