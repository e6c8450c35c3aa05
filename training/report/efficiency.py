"""The last line of a run: what it asked for, what it used, and the next request."""

from __future__ import annotations

import logging
import textwrap
from pathlib import Path

from memory.estimate.efficiency import efficiency_line, efficiency_so_far

log = logging.getLogger("training")

_COLUMNS = 79


def log_efficiency(folder: Path) -> None:
    """Log one line, wrapped for a terminal; nothing for a run without a supervisor.

    Args:
        folder: of the run's first rank.
    """
    found = efficiency_so_far(folder)
    line = efficiency_line([] if found is None else [found])
    if line is not None:
        log.info("%s", textwrap.fill(f"efficiency: {line}", _COLUMNS, subsequent_indent="  "))
