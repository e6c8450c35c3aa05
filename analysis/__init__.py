"""From run folders to answers: pages, pictures, tables, fits. Loads no torch, and nothing early."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.plots import draw_run as draw_run
    from analysis.reading.study import Run as Run
    from analysis.reading.study import Study as Study
    from analysis.reading.study import read_study as read_study
    from analysis.summary import render_run as render_run
    from analysis.summary import render_sweep as render_sweep
    from experiment_utils.run_folder import RunFolder as RunFolder
    from experiment_utils.run_folder import read_run_folder as read_run_folder

_PLACES = {
    "Run": "analysis.reading.study",
    "RunFolder": "experiment_utils.run_folder",
    "Study": "analysis.reading.study",
    "draw_run": "analysis.plots",
    "read_run_folder": "experiment_utils.run_folder",
    "read_study": "analysis.reading.study",
    "render_run": "analysis.summary",
    "render_sweep": "analysis.summary",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
