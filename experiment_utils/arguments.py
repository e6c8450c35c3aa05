"""RUN, the argument of commands: a path, a name under `runs_dir`, or the beginning of an identity."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from experiment_utils.errors import UserError

_OF_A_RUN = {"config.yaml", "jobs.json", "run.json", "outcome.json"}
"""Of a run that is queued the first two alone."""
_READ_OF_A_RUN = _OF_A_RUN | {"status.json", "memory.ring", "memory.jsonl"}


def find_run(given: str, runs_dir: str | None = None) -> Path:
    """A run's folder: RUN is a path, a name under `runs_dir`, or a unique beginning of an identity.

    runs_dir: None: of the environment (HIGHWATER_RUNS_DIR), else `runs` where the user stands. Names end with
    the first eight digits of the identity.

    Raises:
        UserError: there is none, or there are several; names them.
    """
    if not given:
        raise UserError(
            "RUN is empty: expected a run's folder, its name, or part of its identity", code="no-such-run"
        )
    path = path_of(given)
    kind = _kind(path)
    folder = path if is_folder(path) else None if kind is None else path.parent
    if folder is not None:
        for name in sorted(_READ_OF_A_RUN):
            file = folder / name
            if os.access(file, os.F_OK) and not os.access(file, os.R_OK):
                raise UserError(_not_for_us(file), code="not-readable")
        return folder
    root, folders = root_of(runs_dir), run_folders(runs_dir)
    named = sorted(
        folder for folder in folders if folder.name == given or str(folder.relative_to(root)) == given
    )
    found = named or sorted(
        folder
        for folder in folders
        if len(given) >= 4 and folder.name.rpartition("-")[2].startswith(given[:8])
    )
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"{given}: several runs: {', '.join(map(str, found))}. Give one of these paths",
            code="several-runs",
        )
    raise UserError(
        f"{given}: no such run: expected the path of a run's folder, its name under {root}, or the beginning "
        "of its identity (the last part of its name)",
        code="no-such-run",
    )


def path_of(given: str) -> Path:
    """As a shell has it: `~` is a home. What has no name (`.`, `..`) gets it: names and parents are told.

    Raises:
        UserError: there is no such user.
    """
    try:
        path = Path(given).expanduser()
        return path.resolve() if path.name in ("", "..") else path
    except RuntimeError:
        user = given.partition("/")[0]
        raise UserError(
            f"{given}: there is no user {user[1:]}, or one without a home", code="no-such-user"
        ) from None


def is_folder(path: Path) -> bool:
    """Whether it is a folder that this user may read.

    Raises:
        UserError: it may be one, and may not be looked into.
    """
    kind = _kind(path)
    if kind is None or not stat.S_ISDIR(kind):
        return False
    if not os.access(path, os.R_OK | os.X_OK):
        raise UserError(_not_for_us(path), code="not-readable")
    return True


def root_of(runs_dir: str | None = None) -> Path:
    """`runs_dir`, else HIGHWATER_RUNS_DIR, else `runs` where the user stands."""
    return path_of(runs_dir or os.environ.get("HIGHWATER_RUNS_DIR") or "runs")


def run_folders(runs_dir: str | None = None) -> list[Path]:
    """Of all runs under it."""
    return list(_run_folders(root_of(runs_dir)))


def _kind(path: Path) -> int | None:
    """st_mode; None: there is no such file.

    Raises:
        UserError: it may be there, and may not be looked at.
    """
    try:
        return path.stat().st_mode
    except PermissionError:
        raise UserError(_not_for_us(path), code="not-readable") from None
    except (OSError, ValueError):  # a name that no file can have, too
        return None


def _not_for_us(path: Path) -> str:
    return (
        f"{path}: may not be read by this user. Expected a run that you may read: ask its owner for "
        "`chmod -R a+rX` of its folder and of those above it, or ask as its owner"
    )


def _run_folders(root: Path) -> Iterator[Path]:
    """Below a folder: each with a file of a run. What is hidden is no run, and no run lies in another. One
    may lie on another disk, behind a link.
    """
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(root, followlinks=True):
        here = _place(place)
        if here is None or here in seen:  # a link that leads upwards has no end
            folders.clear()
            continue
        seen.add(here)
        if _OF_A_RUN & set(files):
            yield Path(place)
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]


def _place(folder: str) -> tuple[int, int] | None:
    """Device and inode; None of what is gone."""
    try:
        stat = Path(folder).stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
