"""Paths of the files of a token set.

A set is four names: X.npy, X.docs.npy, X.npy.json and X.tokenizer/; or a folder X of shards with
manifest.json and tokenizer/. Hidden paths next to it are of writers: `.X.partial`, `.X.commit` (`commit.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
_TRAIN, _HELD_OUT = "_train", ("_validation", "_val")
_FINGERPRINT_CHARACTERS = 16
_TASKS = re.compile(r"\.(.+)\.tasks")
SHARD_FILES = re.compile(r"shard_\d{5,}(\.docs)?\.npy|manifest\.[0-9a-f]+\.json")


@dataclass(frozen=True)
class SetFiles:
    """Paths of one set."""

    tokens: Path
    """X.npy, or the folder X of shards."""
    version: str | None = None
    """Start of the fingerprint that a folder had before more was appended. None, or not found: the newest."""

    @property
    def is_folder(self) -> bool:
        return not self.tokens.name.endswith(".npy")

    @property
    def exists(self) -> bool:
        """Whether there is a manifest or a token file."""
        return self.manifest.exists() or (self.tokens.exists() and not self.is_folder)

    @property
    def folder(self) -> Path:
        """Folder of the token files."""
        return self.tokens if self.is_folder else self.tokens.parent

    @property
    def stem(self) -> Path:
        return self.tokens.with_name(self.tokens.name.removesuffix(".npy"))

    @property
    def documents(self) -> Path:
        """Document starts of a set in one file. Each shard has its own."""
        return documents_of(self.tokens)

    @property
    def manifest(self) -> Path:
        if not self.is_folder:
            return self.tokens.with_name(f"{self.tokens.name}.json")
        earlier = self.earlier_manifest(self.version) if self.version else None
        return earlier if earlier and earlier.exists() else self.tokens / MANIFEST

    def earlier_manifest(self, fingerprint: str) -> Path:
        """Return the manifest that a folder had before more was appended."""
        return self.tokens / f"manifest.{fingerprint[:_FINGERPRINT_CHARACTERS]}.json"

    @property
    def tokenizer(self) -> Path:
        if self.is_folder:
            return self.tokens / "tokenizer"
        return self.stem.with_name(f"{self.stem.name}.tokenizer")

    @property
    def checked(self) -> Path:
        """Facts found by reading the whole set (`verification_cache.py`)."""
        if self.is_folder:
            return self.tokens / "checked.json"
        return self.tokens.with_name(f"{self.tokens.name}.checked.json")

    @property
    def lock(self) -> Path:
        return self._hidden("lock")

    @property
    def derived(self) -> Path:
        """Folder for what readers compute from the set and can compute again."""
        return self._hidden("derived")

    @property
    def partial(self) -> Path:
        return self._hidden("partial")

    @property
    def commit(self) -> Path:
        return self._hidden("commit")

    @property
    def tasks(self) -> Path:
        """Folder of the tasks that make the set together (`--block-range`)."""
        return self._hidden("tasks")

    @property
    def jobs(self) -> Path:
        """Folder of the jobs that were submitted to make the set, and of their logs (`--slurm`)."""
        return self._hidden("slurm")

    def _hidden(self, ending: str) -> Path:
        return self.tokens.with_name(f".{self.tokens.name}.{ending}")

    @property
    def asked_for(self) -> Path:
        """Path of this set, or of the set of which it is a task."""
        found = _TASKS.fullmatch(self.tokens.parent.name)
        return self.tokens.parent.with_name(found[1]) if found else self.tokens

    @property
    def moves(self) -> list[tuple[str, Path]]:
        """(name in the commit folder, final path) of each part; the manifest last."""
        manifest = (MANIFEST, self.manifest)
        if self.is_folder:
            found = sorted(path.name for path in self.commit.glob("*")) if self.commit.is_dir() else []
            moved = [name for name in found if SHARD_FILES.fullmatch(name) or name == "tokenizer"]
            return [*((name, self.tokens / name) for name in moved), manifest]
        return [
            ("tokenizer", self.tokenizer),
            ("docs.npy", self.documents),
            ("tokens.npy", self.tokens),
            manifest,
        ]


def documents_of(tokens: Path) -> Path:
    """Return the file of the document starts of a token file: X.docs.npy for X.npy."""
    return tokens.with_name(f"{tokens.name.removesuffix('.npy')}.docs.npy")


def other_halves(files: SetFiles) -> list[SetFiles]:
    """Return X_validation and X_val of X_train, and X_train of each of these, in shards or one file."""
    name = files.stem.name
    found: list[str] = []
    if name.endswith(_TRAIN):
        found += [name.removesuffix(_TRAIN) + end for end in _HELD_OUT]
    found += [name.removesuffix(end) + _TRAIN for end in _HELD_OUT if name.endswith(end)]
    return [SetFiles(files.tokens.with_name(one + end)) for one in found for end in ("", ".npy")]


def output_name(output: Path) -> str:
    """Return the name of a set as --output takes it: without `_train` and `_validation`."""
    ending = output.name.removeprefix(SetFiles(output).stem.name)
    return SetFiles(output).stem.name.removesuffix(_TRAIN).removesuffix(_HELD_OUT[0]) + ending
