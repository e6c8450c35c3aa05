"""Call the code of a user's part, and say where it failed."""

from __future__ import annotations

import traceback
from typing import Any

from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError


def called(part: Part, code: Any, *arguments: Any) -> Any:
    """Call the code of a part and return its result.

    Raises:
        UserError: it raises an exception; names FILE:LINE.
    """
    try:
        return code(*arguments)
    except UserError:
        raise
    except Exception as error:
        where = line_in(error, {str(part.file)}) or part.place
        what = f"{part.kind} {part.name} failed: {describe(error)}"
        raise UserError(Problem(where, what, "part-fails")) from error


def describe(error: BaseException) -> str:
    """`ValueError: text` in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_in(error: BaseException, files: set[str]) -> str | None:
    """`FILE:LINE` of the innermost frame of an error that is in one of these files."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
