"""The table of rows, in order: of rows that are equally sure the earlier one is the verdict, or the cause.

To add one, write a `TableRow` in the file of its topic: a condition on `Signals`, what it means, its
evidence lines and
its advice. A row with a verdict says how the run ended, a row with a cause alone says what filled its memory.
"""

from __future__ import annotations

from memory.explain.rules import ends, errors, full_gpu, growth, kernel, pressure, sharing, slurm, stops
from memory.explain.rules.table_row import TableRow

TABLE: tuple[TableRow, ...] = (
    *kernel.ROWS,
    *slurm.ROWS,
    *stops.ROWS,
    *full_gpu.ROWS,
    *errors.ROWS,
    *ends.ROWS,
    *sharing.ROWS,
    *growth.ROWS,
    *pressure.ROWS,
)

__all__ = ["TABLE", "TableRow"]
