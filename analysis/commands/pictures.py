"""Pictures that commands write: PNG, SVG or PDF by the name of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from experiment_utils import atomic_files
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
_DATES = {"svg": "Date", "pdf": "CreationDate"}
"""Dates in files, left out so that the same runs make the same bytes."""


def picture_file(given: str) -> Path:
    """The file that is meant.

    Raises:
        UserError: its name does not end in one of the forms.
    """
    path = Path(given).expanduser()
    if path.suffix.lower() not in _FORMS:
        raise UserError(f"-o {given}: expected a name that ends in {', '.join(_FORMS)}")
    return path


def save_picture(path: Path, drawn: Callable[[], Figure]) -> None:
    """Draw it in our style and write it, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    from memory.report.drawing import DPI, own_style

    form = _FORMS[path.suffix.lower()]
    with own_style():
        from matplotlib import rc_context

        figure = drawn()
        metadata = {_DATES[form]: None} if form in _DATES else None
        try:
            with rc_context({"svg.hashsalt": "highwater"}), atomic_files.atomic_file(path) as file:
                figure.savefig(file, format=form, dpi=DPI, metadata=metadata)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error
