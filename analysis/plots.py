"""The two pictures of a run, drawn into its folder: its loss over tokens, its memory over time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.loss_plot import loss_figure
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.run_folder import RunFolder
from memory.report.data.history import read_history
from memory.report.drawing import own_style, save
from memory.report.run_report import attempt_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("analysis")

_SHOWN = ("metrics.csv", "evals.jsonl", "memory.jsonl", "memory.ring", "outcome.json", "run.json")


def draw_run(folder: Path) -> list[Path]:
    """Draw `loss.png` and `memory.png` into the run folder, as far as there is something to draw.

    Returns:
        The pictures drawn.

    Raises:
        OSError: the folder cannot be written.
    """
    run = RunFolder(folder)
    with own_style():
        figures = {"loss.png": loss_figure(run), "memory.png": memory_figure(run)}
        return [_save(figure, run.path / name) for name, figure in figures.items() if figure is not None]


def memory_figure(run: RunFolder) -> Figure | None:
    """Memory of the newest attempt, as `python -m memory report --png` draws it; None without records."""
    try:
        history = read_history(run.path)
    except UserError:
        return None
    return attempt_figure(history, history.last)


def draw_or_tell(folder: Path) -> list[Path]:
    """The same for a page, which without pictures is better than none: a failure is a warning."""
    try:
        return draw_run(folder)
    except Exception as error:
        log.warning("the pictures of %s cannot be drawn: %s: %s", folder, type(error).__name__, error)
        return []


def are_drawn(folder: Path) -> bool:
    """Whether the pictures are there and no older than what they show."""
    pictures = (folder / "loss.png", folder / "memory.png")
    shown = [path.stat().st_mtime_ns for name in _SHOWN if (path := folder / name).exists()]
    return all(path.exists() for path in pictures) and all(
        path.stat().st_mtime_ns >= max(shown, default=0) for path in pictures
    )


def _save(figure: Figure, path: Path) -> Path:
    with atomic_files.atomic_file(path) as file:
        save(figure, file)
    return path
