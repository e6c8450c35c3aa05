"""The files of a token set, and how they take their place all at once.

A set is four names: X.npy, X.docs.npy, X.npy.json and X.tokenizer/; or a folder X of shards with
manifest.json and tokenizer/. They are written into a hidden folder beside it (`.X.npy.partial`,
`.X.partial`). When everything in it is on the disk it is renamed to `.X.npy.commit`: from that moment the
new set counts, and whoever comes next, reader or writer, finishes moving its parts into place. A set
is never half old and half new.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
_TAKEN_OVER_WAIT_S = 60.0
MANIFEST = "manifest.json"
_TRAIN = "_train"
_HELD_OUT = ("_validation", "_val")
_FINGERPRINT_CHARACTERS = 16
_TASKS = re.compile(r"\.(.+)\.tasks")
_SHARD_FILES = re.compile(r"shard_\d{5,}(\.docs)?\.npy|manifest\.[0-9a-f]+\.json")


@dataclass(frozen=True)
class SetFiles:
    """Paths of the set that is called `tokens`: X.npy, or a folder X of shards.

    version: begin of the fingerprint of a set that the folder held before more was appended; None: the
    newest, as is one of which there is no earlier manifest.
    """

    tokens: Path
    version: str | None = None

    @property
    def is_folder(self) -> bool:
        return not self.tokens.name.endswith(".npy")

    @property
    def exists(self) -> bool:
        """Whether tokens of a set, or what says something of them, lie there."""
        return self.manifest.exists() or (self.tokens.exists() and not self.is_folder)

    @property
    def folder(self) -> Path:
        """Where its token files lie."""
        return self.tokens if self.is_folder else self.tokens.parent

    @property
    def stem(self) -> Path:
        return self.tokens.with_name(self.tokens.name.removesuffix(".npy"))

    @property
    def documents(self) -> Path:
        """Of a set in one file; each shard has its own."""
        return documents_of(self.tokens)

    @property
    def manifest(self) -> Path:
        if not self.is_folder:
            return self.tokens.with_name(f"{self.tokens.name}.json")
        earlier = self.earlier_manifest(self.version) if self.version else None
        return earlier if earlier and earlier.exists() else self.tokens / MANIFEST

    def earlier_manifest(self, fingerprint: str) -> Path:
        """The manifest that a folder had before more was appended."""
        return self.tokens / f"manifest.{fingerprint[:_FINGERPRINT_CHARACTERS]}.json"

    @property
    def tokenizer(self) -> Path:
        return (
            self.tokens / "tokenizer"
            if self.is_folder
            else self.stem.with_name(f"{self.stem.name}.tokenizer")
        )

    @property
    def checked(self) -> Path:
        """What was found out by reading the whole file, kept so that it is read once."""
        if self.is_folder:
            return self.tokens / "checked.json"
        return self.tokens.with_name(f"{self.tokens.name}.checked.json")

    @property
    def lock(self) -> Path:
        return self.tokens.with_name(f".{self.tokens.name}.lock")

    @property
    def derived(self) -> Path:
        """What readers made of the set, and can make again."""
        return self.tokens.with_name(f".{self.tokens.name}.derived")

    @property
    def partial(self) -> Path:
        return self.tokens.with_name(f".{self.tokens.name}.partial")

    @property
    def commit(self) -> Path:
        return self.tokens.with_name(f".{self.tokens.name}.commit")

    @property
    def tasks(self) -> Path:
        """Where the tasks write that make the set together (`--block-range`)."""
        return self.tokens.with_name(f".{self.tokens.name}.tasks")

    @property
    def jobs(self) -> Path:
        """What was submitted to a cluster to make the set, and the logs of it (`--slurm`)."""
        return self.tokens.with_name(f".{self.tokens.name}.slurm")

    @property
    def asked_for(self) -> Path:
        """The set that a user asked for: this one, or that of which this is a task's."""
        found = _TASKS.fullmatch(self.tokens.parent.name)
        return self.tokens.parent.with_name(found[1]) if found else self.tokens

    @property
    def moves(self) -> list[tuple[str, Path]]:
        """(name inside the commit folder, final path) of what a set has; the manifest last."""
        manifest = (MANIFEST, self.manifest)
        if self.is_folder:
            there = sorted(path.name for path in self.commit.glob("*")) if self.commit.is_dir() else []
            moved = [name for name in there if _SHARD_FILES.fullmatch(name) or name == "tokenizer"]
            return [*((name, self.tokens / name) for name in moved), manifest]
        return [
            ("tokenizer", self.tokenizer),
            ("docs.npy", self.documents),
            ("tokens.npy", self.tokens),
            manifest,
        ]


def documents_of(tokens: Path) -> Path:
    """Where the document starts of a token file lie: X.docs.npy for X.npy."""
    return tokens.with_name(f"{tokens.name.removesuffix('.npy')}.docs.npy")


def other_halves(files: SetFiles) -> list[SetFiles]:
    """X_validation and X_val of X_train, and X_train of each of these, in shards or one file."""
    name = files.stem.name
    found: list[str] = []
    if name.endswith(_TRAIN):
        found += [name.removesuffix(_TRAIN) + end for end in _HELD_OUT]
    found += [name.removesuffix(end) + _TRAIN for end in _HELD_OUT if name.endswith(end)]
    return [SetFiles(files.tokens.with_name(one + end)) for one in found for end in ("", ".npy")]


@contextmanager
def staging(files: SetFiles) -> Iterator[Path]:
    """The hidden folder for the parts; what it holds is put in place at the end of the block.

    The caller holds the set's lock and has finished an earlier commit. After an exception the folder
    stays, for another attempt.
    """
    files.partial.mkdir(exist_ok=True)
    yield files.partial
    _sync_tree(files.partial)
    atomic_files.point(f"{files.tokens.name}:before_commit")
    os.rename(files.partial, files.commit)
    atomic_files.fsync_folder(files.tokens.parent)
    atomic_files.point(f"{files.tokens.name}:after_commit")
    finish_commit(files)


def finish_commit(files: SetFiles) -> None:
    """Move what a commit folder still holds into place; nothing to do where there is none.

    Each move can be repeated, so it does not matter where an earlier attempt was killed.
    """
    if not files.commit.is_dir():
        return
    if files.is_folder:
        files.tokens.mkdir(exist_ok=True)
    for name, target in files.moves:
        source = files.commit / name
        if source.is_dir():
            aside = files.commit / "old"
            shutil.rmtree(aside, ignore_errors=True)
            with suppress(FileNotFoundError):
                os.rename(target, aside)
            os.rename(source, target)
        elif source.exists():
            os.replace(source, target)
        atomic_files.point(f"{files.tokens.name}:moved_{name}")
    if files.is_folder:
        _remove_replaced(files)
        atomic_files.fsync_folder(files.tokens)
    atomic_files.fsync_folder(files.tokens.parent)
    shutil.rmtree(files.commit)


def _remove_replaced(files: SetFiles) -> None:
    """Shards and earlier manifests that the manifest in place does not name."""
    manifest = json.loads(files.manifest.read_text(encoding="utf-8"))
    named = {files.manifest.name, *(files.earlier_manifest(found).name for found in manifest["earlier"])}
    for shard in manifest["shards"]:
        named |= {shard["name"], documents_of(Path(shard["name"])).name}
    for path in files.tokens.iterdir():
        if _SHARD_FILES.fullmatch(path.name) and path.name not in named:
            path.unlink()


def settle(files: SetFiles) -> None:
    """For readers: see that no half-finished commit stands.

    Raises:
        UserError: there is one that this process may not finish.
    """
    if not files.commit.is_dir():
        return
    try:
        with lock_file.lock(files.lock, f"token set {files.tokens}", wait_s=_TAKEN_OVER_WAIT_S):
            finish_commit(files)
    except OSError as error:
        raise UserError(
            f"{files.tokens}: its writer was killed while it put the files in place, and they cannot be put "
            f"there now ({error.strerror}). Run this once where {files.tokens.parent} can be written",
            code="settle-failed",
        ) from error


@contextmanager
def disk_errors(
    path: Path,
    output: Path | None = None,
    *,
    is_kept: Callable[[], bool] = lambda: False,
    elsewhere: bool = True,
) -> Iterator[None]:
    """A full disk or a read-only folder becomes a UserError that names the path and what to type.

    output: the set, where `path` is made of it. is_kept: whether another attempt can go on with what was
    done. elsewhere: False for what cannot be made on another disk instead.
    """
    output = output or path
    try:
        yield
    except OSError as error:
        failed = f"{path} cannot be written: {os.strerror(error.errno or 0)}. "
        other = another_disk(output)
        if error.errno in _FULL:
            kept, go_on = ("; what was done is kept", " to go on") if is_kept() else ("", "")
            or_else = f", or tokenize to another disk: {other}" if elsewhere else ""
            raise UserError(
                f"{failed}What was there before is untouched{kept}. Make room and type the same command "
                f"again{go_on}{or_else}",
                code="disk-full",
            ) from error
        if error.errno in _FORBIDDEN and elsewhere:
            raise UserError(
                f"{failed}Tokenize into a folder that can be: {other} (a run reads it with "
                f"dataset.path=/ANOTHER/FOLDER/{_named(output)})",
                code="file-unwritable",
            ) from error
        if error.errno in _FORBIDDEN:
            raise UserError(
                f"{failed}See that you may write in {path.parent}, and type the same command again",
                code="file-unwritable",
            ) from error
        if SetFiles(path).lock.name in str(error.filename):  # where no file can be made, in /proc say
            raise UserError(
                f"{path} cannot be written: no file can be made in {path.parent} "
                f"({os.strerror(error.errno or 0)}). Tokenize into another folder: {elsewhere}",
                code="file-unwritable",
            ) from error
        raise


def another_disk(output: Path) -> str:
    """What a user types to make the set `output` on another disk. All other flags decide what is in it."""
    return (
        f"the same command of pretokenize_dataset.py with --output /ANOTHER/FOLDER/{_named(output)}, all "
        "else as it is"
    )


def _named(output: Path) -> str:
    """As --output has it: without what a set's name ends in where text is held out."""
    end = output.name.removeprefix(SetFiles(output).stem.name)
    return SetFiles(output).stem.name.removesuffix(_TRAIN).removesuffix(_HELD_OUT[0]) + end


def _sync_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            atomic_files.fsync_folder(path)
        else:
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
