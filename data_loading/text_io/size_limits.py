"""Limit on the length of a line or a cell, which is held in memory whole."""

from __future__ import annotations

from experiment_utils.errors import UserError

LONGEST_BYTES = 64 << 20
"""Unless --run-limit allows more."""


class TooLong(ValueError):
    """A line or cell above the limit.

    place: offset of the line, or number of the row. size_bytes: None if only known to be above the limit.
    """

    def __init__(self, place: int, size_bytes: int | None = None) -> None:
        super().__init__(place, size_bytes)
        self.place, self.size_bytes = place, size_bytes


def too_long(where: str, limit_bytes: int, size_bytes: int | None = None) -> UserError:
    """The error for a line or cell above the limit. size_bytes: None if it is not known."""
    limit, enough = f"{limit_bytes / 2**20:g} MB", -(-max(2 * limit_bytes, size_bytes or 0) // 2**20)
    size = f"more than {limit}" if size_bytes is None else f"{size_bytes / 2**20:,.1f} MB, above {limit}"
    return UserError(
        f"{where} has {size}, and is held in memory whole, several times over. Divide it into several "
        f"documents, or allow longer ones (--run-limit {enough}MB)",
        code="document-too-long",
    )
