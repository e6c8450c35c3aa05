"""The two pictures of a run, drawn into its folder: its loss over tokens, its memory over time."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import durable
from analysis.loss_plot import loss_figure
from analysis.memory_plot import memory_figure
from analysis.run_folder import read_run_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("analysis")

DPI = 150

_STYLE = {
    "text.parse_math": False,  # a run's name may hold a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": "#555555",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
}


def draw_run(folder: Path) -> list[Path]:
    """Draw `loss.png` and `memory.png` into the run folder, as far as there is something to draw.

    Returns:
        The pictures drawn.

    Raises:
        UserError: there is no such folder.
        OSError: the folder cannot be written.
    """
    run = read_run_folder(folder)
    with own_style():
        figures = {"loss.png": loss_figure(run), "memory.png": memory_figure(run)}
        return [_save(figure, run.path / name) for name, figure in figures.items() if figure is not None]


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
    shown = [
        path.stat().st_mtime_ns
        for name in ("metrics.csv", "evals.jsonl", "memory.jsonl", "run.json")
        if (path := folder / name).exists()
    ]
    return all(path.exists() for path in pictures) and all(
        path.stat().st_mtime_ns >= max(shown, default=0) for path in pictures
    )


@contextmanager
def own_style() -> Iterator[None]:
    """The same look whatever the user's matplotlibrc says, and nothing told on stderr."""
    # that it builds its font cache, or has no home to put it in, matplotlib tells as a warning
    chatter = logging.getLogger("matplotlib")
    level_before = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        from matplotlib import style

        with style.context(["default", _STYLE]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        chatter.setLevel(level_before)


def _save(figure: Figure, path: Path) -> Path:
    with durable.atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=DPI)
    return path
