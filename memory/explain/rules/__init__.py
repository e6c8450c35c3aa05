"""The table of rows, in order: of equally sure rows the earlier one is the verdict, or the cause.

To add one, write a `TableRow` in the file of its topic: a condition on `Signals`, what it means, the names of
its evidence lines and of its advice. A row with a verdict says how the run ended, one with a cause alone says
what filled its memory.
"""

from __future__ import annotations

from memory.explain.rules import causes, ends, errors
from memory.explain.rules.table_row import TableRow

TABLE: tuple[TableRow, ...] = (*ends.ROWS, *errors.ROWS, *ends.GOOD_OR_UNKNOWN, *causes.ROWS)

__all__ = ["TABLE", "TableRow"]
