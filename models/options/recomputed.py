"""Which blocks are computed again on the way back (`training.activation_checkpointing`). No torch."""

from __future__ import annotations


def recomputed_blocks(asked: bool | int, layers: int) -> int:
    """How many of so many blocks, the first ones: these come last on the way back, when the others have given
    back what they saved, so that computing again meets the least memory.

    asked: all or none, or so many.
    """
    return layers * asked if isinstance(asked, bool) else min(asked, layers)
