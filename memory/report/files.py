"""Where pages and pictures go."""

from __future__ import annotations

from pathlib import Path

from experiment_utils.atomic_files import write_bytes
from experiment_utils.errors import UserError


def write_into(folder: Path, name: str, content: bytes) -> Path:
    """Write the file into the folder, which is made where it is missing.

    Raises:
        UserError: it cannot be written; says why, and how to write elsewhere.
    """
    path = folder.expanduser() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(str(path), content)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Write it elsewhere with --output FOLDER",
            code="output-not-writable",
        ) from error
    return path
