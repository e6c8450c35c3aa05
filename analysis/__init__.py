"""From run folders to answers: the pages and pictures that end a run or a sweep. Loads no torch."""

from __future__ import annotations

from analysis.plots import draw_run
from analysis.run_folder import RunFolder, read_run_folder
from analysis.summary import render_run, render_sweep

__all__ = ["RunFolder", "draw_run", "read_run_folder", "render_run", "render_sweep"]
