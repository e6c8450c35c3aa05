"""Errors of the disk that a set is written to, as messages for a user."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data_loading.tokens.set_files import SetFiles, output_name
from experiment_utils.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def disk_errors(
    path: Path,
    output: Path | None = None,
    *,
    is_kept: Callable[[], bool] = lambda: False,
    elsewhere: bool = True,
) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a UserError with the command that helps.

    Args:
        path: What is written.
        output: The set, if `path` is made from it.
        is_kept: Whether another attempt can resume from what was done.
        elsewhere: Whether it can be made on another disk.
    """
    output = output or path
    try:
        yield
    except OSError as error:
        failed = f"{path} cannot be written: {os.strerror(error.errno or 0)}. "
        if error.errno in _FULL:
            kept, resume = ("; what was done is kept", " to resume") if is_kept() else ("", "")
            or_else = f", or tokenize to another disk: {another_disk(output)}" if elsewhere else ""
            raise UserError(
                f"{failed}What was there before is untouched{kept}. Make room and type the same command "
                f"again{resume}{or_else}",
                code="disk-full",
            ) from error
        cannot_lock = SetFiles(path).lock.name in str(error.filename)  # such as ENOENT below /proc
        if error.errno not in _FORBIDDEN and not cannot_lock:
            raise
        if elsewhere:
            advice = (
                f"Tokenize into another folder: {another_disk(output)} (a run reads it with "
                f"dataset.path=/ANOTHER/FOLDER/{output_name(output)})"
            )
        else:
            advice = f"Allow writing in {path.parent}, and type the same command again"
        raise UserError(failed + advice, code="file-unwritable") from error


def another_disk(output: Path) -> str:
    """Return how to make the set `output` on another disk."""
    return (
        f"the same command of pretokenize_dataset.py with --output /ANOTHER/FOLDER/{output_name(output)}, "
        "all else as it is"
    )
