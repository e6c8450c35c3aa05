"""How every picture is drawn: size, style, no window, nothing told on stderr. matplotlib is loaded here."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_INCHES = (6.4, 4.0)
DPI = 150
_TITLE_POINTS, _POINTS_AN_INCH = 9, 72
_WIDTH_OF_A_LETTER = 0.62
"""Of DejaVu Sans, in heights: of words and digits, a little less."""

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
    "hatch.linewidth": 0.6,
}


def new_figure(size_inches: tuple[float, float] = SIZE_INCHES) -> Figure:
    """A figure for Agg: no window, no display, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def give_title(figure: Figure, title: str, color: str) -> None:
    """Above all of it, in as many lines as it needs: matplotlib's own wrapping reads a $ as mathematics."""
    columns = int(figure.get_figwidth() * _POINTS_AN_INCH / (_TITLE_POINTS * _WIDTH_OF_A_LETTER))
    figure.suptitle(textwrap.fill(title, columns), x=0.01, ha="left", fontsize=_TITLE_POINTS, color=color)


@contextmanager
def own_style() -> Iterator[None]:
    """The same look whatever the user's matplotlibrc says, and nothing told on stderr.

    Raises:
        UserError: matplotlib is not installed.
    """
    # that it builds its font cache, or has no home to put it in, matplotlib tells as a warning
    chatter = logging.getLogger("matplotlib")
    level_before = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        try:
            from matplotlib import style
        except ImportError as error:
            raise UserError(
                "a PNG needs matplotlib: pip install matplotlib, or ask for --html", code="no-matplotlib"
            ) from error
        with style.context(["default", _STYLE]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        chatter.setLevel(level_before)


def save(figure: Figure, file: Any) -> None:
    """Write the figure as PNG."""
    figure.savefig(file, format="png", dpi=DPI)


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    file = io.BytesIO()
    save(figure, file)
    return file.getvalue()
