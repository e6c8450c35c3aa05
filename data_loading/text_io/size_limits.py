"""How long a line or a cell may be, which is held in memory whole."""

from __future__ import annotations

from experiment_utils.errors import UserError

LONGEST_BYTES = 64 << 20
"""Unless --run-limit allows more."""


class LineTooLong(ValueError):
    """offset: of its first byte."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class CellTooLong(ValueError):
    """row: among those that were asked for."""

    def __init__(self, row: int, size: int) -> None:
        super().__init__(row, size)
        self.row, self.size = row, size


def too_long(where: str, limit_bytes: int, size_bytes: int | None = None) -> UserError:
    """What a user is told. size_bytes: None where it is not known, only that it is above the limit."""
    size = "more than" if size_bytes is None else f"{size_bytes / 2**20:,.1f} MB long, above"
    enough = -(-max(2 * limit_bytes, size_bytes or 0) // 2**20)
    return UserError(
        f"{where} is {size} {limit_bytes / 2**20:g} MB{' long' if size_bytes is None else ''}, and has to be "
        f"held in memory whole, several times over. Divide it into several documents, or allow longer ones "
        f"(--run-limit {enough}MB)",
        code="document-too-long",
    )
