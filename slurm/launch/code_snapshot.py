"""A copy of the code for jobs: they run the code of submit time, whatever is edited later.

    runs_dir/.snapshots/HASH/                 the files, read-only, with the paths of the checkout
    runs_dir/.snapshots/HASH/.snapshot.json   commit, whether it was dirty, each file with its size
    runs_dir/.snapshots/HASH/.snapshot.diff   difference from the commit in files that git tracks

With git these are the tracked files and the new ones that it does not ignore, without git those of the
packages. HASH is of all paths, bytes and the commit, so one tree is copied once for all its sweeps. Data are
not part of the copy: a job changes to the folder in which it was submitted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_utils.errors import Problem, UserError
from experiment_utils.modules import IMPORT_ROOT, IS_INSTALLED
from memory import format_bytes
from training.attempt.code_record import SNAPSHOT_DIFF as DIFF
from training.attempt.code_record import SNAPSHOT_MANIFEST as MANIFEST
from training.attempt.code_record import SNAPSHOTS
from training.attempt.code_record import git as _git

log = logging.getLogger("slurm")

LIMIT_BYTES = 100 << 20
PACKAGE = ("highwater", "hydra_plugins/highwater.py") if IS_INSTALLED else (
    "analysis", "conf", "core.py", "data_loading", "experiment_utils", "experiments.py", "highwater",
    "hydra_plugins", "memory", "models", "pretokenize_dataset.py", "pyproject.toml", "slurm", "training",
)  # fmt: skip
"""Files and folders that are copied without git."""
_SHOWN_FILES = 5
_NOT_CODE = {SNAPSHOTS, ".submissions", "__pycache__", ".git"}
_OUTPUT_OF_JOB = re.compile(r"slurm-\d+(_\d+)?\.out")
"""Default name that sbatch gives a job's output: a job of slurm/submit_job.sh writes it in the checkout."""
NO_PATHSEP = (
    f"Python reads {os.pathsep} as the end of a folder's name (PYTHONPATH), and would not find the copy of "
    "the code: choose a folder without it"
)


@dataclass(frozen=True)
class Snapshot:
    """A copy of the code. commit, dirty: of the checkout; None without git."""

    path: Path
    hash: str
    commit: str | None
    dirty: bool | None


@dataclass(frozen=True)
class _File:
    """A file as it was read once."""

    name: str
    mode: int
    """0o444, 0o555 or, for a symbolic link, 0o120000."""
    content: bytes
    """For a symbolic link its target."""


@contextmanager
def while_submitting(runs_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Keep `clean` from removing copies, from before `take` until the submission is written."""
    with _locked(Path(runs_dir).expanduser(), fcntl.LOCK_SH):
        yield


@contextmanager
def while_removing(runs_dir: Path) -> Iterator[None]:
    """Keep commands from submitting. Raises BlockingIOError if one is submitting."""
    with _locked(runs_dir, fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextmanager
def _locked(runs_dir: Path, how: int) -> Iterator[None]:
    with ExitStack() as held:
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(open(runs_dir / f"{SNAPSHOTS}.lock", "a"))
        except OSError as error:
            what = f"cannot write {error.filename}: {error.strerror}. Choose another place with runs_dir="
            raise UserError(Problem("runs_dir", what, "runs-dir-not-writable")) from error
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            raise
        except OSError:  # a file system without flock: the window is some seconds
            pass
        yield


def take(
    runs_dir: str | os.PathLike[str], *, root: Path = IMPORT_ROOT, limit_bytes: int = LIMIT_BYTES
) -> Snapshot:
    """Copy the code of `root`, or find the copy of the same code. Several processes can do so in parallel.

    Files are not fsynced, which takes seconds: the next call writes a file again that a power cut has
    shortened or that a cleaning service has removed.

    Raises:
        UserError: the code is larger than `limit_bytes`, the folder cannot be written, it is the checkout
            itself, or its name cannot be part of PYTHONPATH.
    """
    runs_dir, root = Path(runs_dir).expanduser().resolve(), Path(root).resolve()
    if os.pathsep in str(runs_dir):
        raise UserError(f"{runs_dir}: {NO_PATHSEP}", code="path-separator")
    if runs_dir == root:
        raise UserError(
            f"runs_dir={runs_dir} is the folder of the code, and each copy of it would hold all runs. Choose "
            "a folder inside it or another place: runs_dir=runs",
            code="runs-dir-is-code",
        )
    try:
        return _take(runs_dir / SNAPSHOTS, runs_dir, root, limit_bytes)
    except OSError as error:
        raise UserError(
            f"cannot copy the code of {root} to {runs_dir / SNAPSHOTS}: {error.strerror}"
            f"{f' ({error.filename})' if error.filename else ''}. Choose another place with runs_dir=",
            code="snapshot-not-written",
        ) from error


def _take(snapshots: Path, runs_dir: Path, root: Path, limit_bytes: int) -> Snapshot:
    is_tracked = bool(_git(root, "ls-files", "-z", "core.py"))
    names = _listed(root, "--cached", "--others") if is_tracked else _files_of_packages(root)
    outputs = None if root.is_relative_to(runs_dir) else runs_dir
    names = sorted({name for name in names if _is_code(root, name, outputs)})
    _check_size(root, names, limit_bytes)
    commit, dirty, diff = None, None, b""
    if is_tracked:
        commit = (_git(root, "rev-parse", "HEAD") or b"").decode().strip() or None
        diff = _git(root, "diff", "--binary", *(["HEAD"] if commit else []), "--", ".") or b""
        dirty = bool(diff) or not set(_listed(root, "--others")).isdisjoint(names)
    files = [file for name in names if (file := _read(root, name)) is not None]
    described = [commit, [[file.name, file.mode, hashlib.sha256(file.content).hexdigest()] for file in files]]
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    found = Snapshot(snapshots / digest, digest, commit, dirty)
    sizes = {file.name: 0 if stat.S_ISLNK(file.mode) else len(file.content) for file in files}
    for file in files:
        if not is_there(found.path / file.name, sizes[file.name]):
            _write(found.path / file.name, file)
    if not (found.path / MANIFEST).exists():  # the last file: a copy that has it is whole
        manifest: dict[str, Any] = {"version": 1, "commit": commit, "dirty": dirty, "root": str(root)}
        manifest |= {"made_s": round(time.time(), 3), "size_bytes": sum(sizes.values()), "files": sizes}
        _write(found.path / DIFF, _File(DIFF, 0o444, diff))
        _write(found.path / MANIFEST, _File(MANIFEST, 0o444, json.dumps(manifest, indent=1).encode()))
        source = f"commit {commit[:12]}{' with changes' if dirty else ''}" if commit else root
        log.info("code: %s, %s files of %s", found.path, len(files), source)
    return found


def _files_of_packages(root: Path) -> list[str]:
    tops = [root / top for top in PACKAGE]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return [str(path.relative_to(root)) for path in paths if path.is_file()]


def _listed(root: Path, *kinds: str) -> list[str]:
    """Paths of files that git lists, those of a repository inside it by the rules of that one."""
    names: list[str] = []
    answer = _git(root, "ls-files", "-z", *kinds, "--exclude-standard") or b""
    for name in map(os.fsdecode, filter(None, answer.split(b"\0"))):
        path = root / name
        is_repository = path.is_dir() and not path.is_symlink()
        names += [f"{name.rstrip('/')}/{one}" for one in _listed(path, *kinds)] if is_repository else [name]
    return names


def _is_code(root: Path, name: str, runs_dir: Path | None) -> bool:
    """Whether a file is neither below runs_dir nor an output of a submission or a job."""
    parts = Path(name).parts
    is_of_run = runs_dir is not None and (root / name).is_relative_to(runs_dir)
    return not (is_of_run or _NOT_CODE.intersection(parts) or _OUTPUT_OF_JOB.fullmatch(parts[-1]))


def _check_size(root: Path, names: Sequence[str], limit_bytes: int) -> None:
    sizes: dict[str, int] = {}
    for name in names:
        with suppress(FileNotFoundError):
            sizes[name] = (root / name).lstat().st_size
    total = sum(sizes.values())
    if total > limit_bytes:
        largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_SHOWN_FILES]
        shown = ", ".join(f"{name} {format_bytes(sizes[name])}" for name in largest)
        raise UserError(
            f"the code of {root} is {format_bytes(total)}, and a copy for jobs is at most "
            f"{format_bytes(limit_bytes)}. Its largest files: {shown}. Name files that are not code in "
            ".gitignore, or move them elsewhere; data belong in Datasets/",
            code="code-too-large",
        )


def _read(root: Path, name: str) -> _File | None:
    """None if it was deleted, although git still lists it, or is not a file."""
    path = root / name
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return _File(name, stat.S_IFLNK, os.fsencode(path.readlink()))
        permissions = 0o555 if mode & stat.S_IXUSR else 0o444
        return _File(name, permissions, path.read_bytes()) if stat.S_ISREG(mode) else None
    except FileNotFoundError:
        return None


def is_there(path: Path, size_bytes: int) -> bool:
    """Whether a file of a copy still has its size; a symbolic link is there or not."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or found.st_size == size_bytes


def _write(path: Path, file: _File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    if stat.S_ISLNK(file.mode):
        temporary.symlink_to(os.fsdecode(file.content))
    else:
        temporary.write_bytes(file.content)
        readers = temporary.stat().st_mode & 0o444  # those that the umask lets read
        temporary.chmod(file.mode & (readers | readers >> 2))
    temporary.replace(path)
