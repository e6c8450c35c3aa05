"""RUN, the argument of commands: a path, a name under `runs_dir`, or the beginning of an identity."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from experiment_utils.errors import UserError

_RUN_FILES = {"config.yaml", "jobs.json", "run.json", "outcome.json"}
"""Any of these makes a folder a run. A queued run has only the first two."""
_FILES_TO_READ = _RUN_FILES | {"status.json", "memory.ring", "memory.jsonl"}


def find_run(given: str, runs_dir: str | None = None) -> Path:
    """Find the folder of a run.

    Args:
        given: a path, a name under `runs_dir`, or a unique beginning of an identity. Names of runs end
            with the first eight digits of the identity.
        runs_dir: None: HIGHWATER_RUNS_DIR, else `runs` in the current folder.

    Raises:
        UserError: no run or several runs match; lists them.
    """
    if not given:
        raise UserError(
            "RUN is empty: expected a run's folder, its name, or part of its identity", code="no-such-run"
        )
    path = path_of(given)
    if _mode(path):
        folder = path if is_folder(path) else path.parent
        for file in (folder / name for name in sorted(_FILES_TO_READ)):
            if os.access(file, os.F_OK) and not os.access(file, os.R_OK):
                raise UserError(_no_permission(file), code="not-readable")
        return folder
    root, folders = root_of(runs_dir), sorted(run_folders(runs_dir))
    found = [folder for folder in folders if given in (folder.name, str(folder.relative_to(root)))]
    if not found and len(given) >= 4:
        found = [path for path in folders if path.name.rpartition("-")[2].startswith(given[:8])]
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
    """Path as a shell reads it: `~` is a home folder. `.` and `..` are resolved: each path has a name.

    Raises:
        UserError: the user of `~user` does not exist.
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
        UserError: permissions do not allow to look into it.
    """
    if not stat.S_ISDIR(_mode(path)):
        return False
    if not os.access(path, os.R_OK | os.X_OK):
        raise UserError(_no_permission(path), code="not-readable")
    return True


def root_of(runs_dir: str | None = None) -> Path:
    """Folder of all studies: `runs_dir`, else HIGHWATER_RUNS_DIR, else `runs` in the current folder."""
    return path_of(runs_dir or os.environ.get("HIGHWATER_RUNS_DIR") or "runs")


def run_folders(runs_dir: str | None = None) -> list[Path]:
    """Folders of all runs under `root_of(runs_dir)`, also behind links: those with a file of a run. Hidden
    folders and folders inside a run are no runs.
    """
    found, seen = [], set[tuple[int, int]]()
    for place, folders, files in os.walk(root_of(runs_dir), followlinks=True):
        try:
            status = Path(place).stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder above would never end
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        if _RUN_FILES & set(files):
            found.append(Path(place))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return found


def _mode(path: Path) -> int:
    """st_mode of a file; 0 if it does not exist.

    Raises:
        UserError: permissions do not allow to look.
    """
    try:
        return path.stat().st_mode
    except PermissionError:
        raise UserError(_no_permission(path), code="not-readable") from None
    except (OSError, ValueError):  # a name that no file can have, too
        return 0


def _no_permission(path: Path) -> str:
    return (
        f"{path}: may not be read by this user. Expected a run that you may read: ask its owner for "
        "`chmod -R a+rX` of its folder and of those above it, or ask as its owner"
    )
