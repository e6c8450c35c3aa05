"""A copy of the code for jobs: what was there at submit time is what runs, whatever is edited later.

    runs_dir/.snapshots/HASH/                 the files, read-only, as they lay in the checkout
    runs_dir/.snapshots/HASH/.snapshot.json   commit, whether it was dirty, each file with its size
    runs_dir/.snapshots/HASH/.snapshot.diff   what differed from the commit in files that git tracks

With git these are the files that it tracks and the new ones that it does not ignore, less what jobs of plain
scripts write there (slurm-JOB.out); elsewhere those of the package. HASH is of all paths and bytes and of the
commit, so that one tree is copied once, however many sweeps are submitted from it. Data lie where the user
stands, not here: a job goes back there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from memory import format_bytes
from training.attempt.code_record import SNAPSHOT_DIFF as DIFF
from training.attempt.code_record import SNAPSHOT_MANIFEST as MANIFEST
from training.attempt.code_record import SNAPSHOTS, read_manifest
from training.attempt.code_record import git as _git

log = logging.getLogger("slurm")

__all__ = ["Snapshot", "read_manifest", "take"]

ROOT = Path(__file__).resolve().parents[2]
VERSION = 1
LIMIT_BYTES = 100 << 20
PACKAGE = (
    "analysis", "conf", "core.py", "data_loading", "experiment_utils", "experiments.py",
    "highwater.py", "hydra_plugins", "memory", "models", "pretokenize_dataset.py", "pyproject.toml", "slurm",
    "training",
)  # fmt: skip
"""What is copied where there is no git."""
_TOLD = 5
_TRIES = 3
_OUTPUTS = (SNAPSHOTS, ".submissions")
_OUTPUT_OF_JOB = re.compile(r"slurm-\d+(_\d+)?\.out")
"""sbatch's own name for it, where none is given; a job of slurm/submit_job.sh writes there all the time."""
_NEVER = ("__pycache__", ".git")
NO_PATHSEP = (
    f"Python reads {os.pathsep} as the end of a folder's name (PYTHONPATH), and would not find the copy of "
    "the code: choose a folder without it"
)


@dataclass(frozen=True)
class Snapshot:
    """path: the folder to be first on PYTHONPATH. commit, dirty: of the checkout; None without git."""

    path: Path
    hash: str
    commit: str | None
    dirty: bool | None


@dataclass(frozen=True)
class _File:
    """mode: 0o444, 0o555 or, of a symbolic link, 0o120000. digest: SHA-256 of its bytes, or of the target."""

    name: str
    size_bytes: int
    mode: int
    digest: str


class _Moving(Exception):
    """This file was changed while it was copied."""


@contextmanager
def while_submitting(runs_dir: str | os.PathLike[str]) -> Iterator[None]:
    """From before `take` until the submission is written: `clean` leaves all copies alone meanwhile."""
    with _locked(Path(runs_dir).expanduser(), fcntl.LOCK_SH):
        yield


@contextmanager
def while_removing(runs_dir: Path) -> Iterator[None]:
    """Nobody begins to submit meanwhile. Raises BlockingIOError: somebody does."""
    with _locked(runs_dir, fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextmanager
def _locked(runs_dir: Path, how: int) -> Iterator[None]:
    """Raises UserError: nothing can be written there."""
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


def take(runs_dir: str | os.PathLike[str], *, root: Path = ROOT, limit_bytes: int = LIMIT_BYTES) -> Snapshot:
    """Copy the code of `root`, or find the copy of the same that is there. Two shells may do so at once.

    Files are not fsynced one by one, which takes seconds: one that a power cut has shortened, or a cleaning
    service has taken away, is written anew by the next call.

    Raises:
        UserError: it is larger than `limit_bytes`, with its largest files; the folder cannot be written, or
            is the checkout itself, where nothing tells runs from code; or Python could not be told of it.
    """
    runs_dir, root = Path(runs_dir).expanduser().resolve(), Path(root).resolve()
    if os.pathsep in str(runs_dir):
        raise UserError(f"{runs_dir}: {NO_PATHSEP}", code="path-separator")
    if runs_dir == root:
        raise UserError(
            f"runs_dir={runs_dir} is where the code lies, and jobs get a copy of that: each copy would hold "
            "all runs before it. Choose a folder inside it or another place: runs_dir=runs",
            code="runs-dir-is-code",
        )
    moving: dict[str, None] = {}
    try:
        for _ in range(_TRIES):
            try:
                return _take(runs_dir / SNAPSHOTS, runs_dir, root, limit_bytes)
            except _Moving as moved:
                moving[str(moved)] = None
    except OSError as error:
        raise UserError(
            f"cannot copy the code of {root} to {runs_dir / SNAPSHOTS}: {error.strerror}"
            f"{f' ({error.filename})' if error.filename else ''}. Choose another place with runs_dir=",
            code="snapshot-not-written",
        ) from error
    raise UserError(
        f"{', '.join(moving)} of {root} changed while the code was copied. Wait until that is over and try "
        f"again; what is no code is left alone where .gitignore names it",
        code="code-changed",
    )


def _take(snapshots: Path, runs_dir: Path, root: Path, limit_bytes: int) -> Snapshot:
    tracked = _git(root, "ls-files", "-z", "core.py")
    commit, dirty, diff = None, None, b""
    if tracked:
        commit = (_git(root, "rev-parse", "HEAD") or b"").decode().strip() or None
        diff = _git(root, "diff", "--binary", *(["HEAD"] if commit else []), "--", ".") or b""
        dirty = bool(diff)
    names = _names_by_git(root) if tracked else _names_of_package(root)
    outputs = None if root.is_relative_to(runs_dir) else runs_dir  # of one that lies above, nothing is here
    wanted = [name for name in sorted(set(names)) if not _is_output(root / name, name, outputs)]
    if dirty is False:  # of what git does not know yet there is no difference
        dirty = not set(_listed(root, "--others")).isdisjoint(wanted)
    _check_size(root, wanted, limit_bytes, by_git=bool(tracked))
    files = [file for name in wanted if (file := _read(root, name)) is not None]
    described = [commit, [[file.name, file.mode, file.digest] for file in files]]
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    result = Snapshot(snapshots / digest, digest, commit, dirty)
    if not result.path.is_dir():
        _make(result, root, files, diff)
    for file in files:
        if not _is_there(result.path, file):
            _put(root, result.path, file)
    return result


def _make(snapshot: Snapshot, root: Path, files: Sequence[_File], diff: bytes) -> None:
    """Under another name first: whoever finds the folder finds all of it."""
    folder = snapshot.path.with_name(f".{snapshot.hash}.{socket.gethostname()}.{os.getpid()}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for file in files:
            _put(root, folder, file)
        manifest = {
            "version": VERSION,
            "commit": snapshot.commit,
            "dirty": snapshot.dirty,
            "root": str(root),
            "made_s": round(time.time(), 3),
            "size_bytes": sum(file.size_bytes for file in files),
            "files": {file.name: file.size_bytes for file in files},
        }
        atomic_files.write_json(folder / MANIFEST, manifest)
        (folder / DIFF).write_bytes(diff)
        for name in (MANIFEST, DIFF):
            (folder / name).chmod(0o444)
        try:
            folder.rename(snapshot.path)
        except OSError:
            if not snapshot.path.is_dir():
                raise
            return  # another shell was faster
        atomic_files.fsync_folder(snapshot.path.parent)
        log.info(
            "code: %s, %s files of %s%s",
            snapshot.path,
            len(files),
            f"commit {snapshot.commit[:12]}" if snapshot.commit else str(root),
            " with changes" if snapshot.dirty else "",
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(root: Path, folder: Path, file: _File) -> None:
    """Raises _Moving: it is no longer what it was."""
    path = folder / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    if stat.S_ISLNK(file.mode):
        temporary.symlink_to((root / file.name).readlink())
    else:
        try:
            content = (root / file.name).read_bytes()
        except FileNotFoundError as error:
            raise _Moving(file.name) from error
        if hashlib.sha256(content).hexdigest() != file.digest:
            raise _Moving(file.name)
        temporary.write_bytes(content)
        readers = temporary.stat().st_mode & 0o444  # those that the umask lets read
        temporary.chmod(file.mode & (readers | readers >> 2))
    temporary.replace(path)


def _is_there(folder: Path, file: _File) -> bool:
    try:
        found = (folder / file.name).lstat()
    except OSError:
        return False
    return stat.S_ISLNK(file.mode) == stat.S_ISLNK(found.st_mode) and (
        stat.S_ISLNK(file.mode) or found.st_size == file.size_bytes
    )


def _read(root: Path, name: str) -> _File | None:
    """None: it was deleted, and git still lists it; or it is no file."""
    path = root / name
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return _File(name, 0, stat.S_IFLNK, hashlib.sha256(os.fsencode(path.readlink())).hexdigest())
        if not stat.S_ISREG(found.st_mode):
            return None
        mode = 0o555 if found.st_mode & stat.S_IXUSR else 0o444
        return _File(name, found.st_size, mode, atomic_files.file_sha256(path))
    except FileNotFoundError:
        return None


def _names_by_git(root: Path) -> list[str]:
    """Of tracked and of new files; those of a repository inside it by its own rules."""
    names: list[str] = []
    for name in _listed(root, "--cached", "--others"):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            names += [f"{name.rstrip('/')}/{inner}" for inner in _names_by_git(path)]
        else:
            names.append(name)
    return names


def _listed(root: Path, *kinds: str) -> Iterator[str]:
    listed = _git(root, "ls-files", "-z", *kinds, "--exclude-standard") or b""
    return map(os.fsdecode, filter(None, listed.split(b"\0")))


def _names_of_package(root: Path) -> list[str]:
    names: list[str] = []
    for top in PACKAGE:
        path = root / top
        files: Iterable[Path] = path.rglob("*") if path.is_dir() else [path]
        names += [
            str(file.relative_to(root)) for file in files if file.is_file() and not {*file.parts} & {*_NEVER}
        ]
    return names


def _is_output(path: Path, name: str, runs_dir: Path | None) -> bool:
    """Whether it lies below runs_dir, or another submission or a job writes it: that is no code."""
    parts = Path(name).parts
    is_of_job = _OUTPUT_OF_JOB.fullmatch(parts[-1]) is not None
    is_of_run = runs_dir is not None and path.is_relative_to(runs_dir)
    return is_of_job or is_of_run or bool({*parts} & {*_OUTPUTS})


def _check_size(root: Path, names: Iterable[str], limit_bytes: int, *, by_git: bool) -> None:
    """Before any of them is read."""
    sizes: dict[str, int] = {}
    for name in names:
        with suppress(FileNotFoundError):
            sizes[name] = (root / name).lstat().st_size
    total = sum(sizes.values())
    if total <= limit_bytes:
        return
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_TOLD]
    told = ", ".join(f"{name} {format_bytes(sizes[name])}" for name in largest)
    mend = "Name what is no code in .gitignore" if by_git else "Move what is no code elsewhere"
    raise UserError(
        f"the code of {root} is {format_bytes(total)}, and a copy for jobs is at most "
        f"{format_bytes(limit_bytes)}. Its largest files: {told}. {mend}; data belong in Datasets/",
        code="code-too-large",
    )
