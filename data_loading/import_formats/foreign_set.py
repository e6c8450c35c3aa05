"""Tokens of another program's files, checked once and then read as they lie."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf import AUTO
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout
from data_loading.import_formats.recognize import open_layouts
from data_loading.readers.extents import Extents
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.tokens import UNKNOWN, Tokens
from data_loading.tokens.verification_cache import CHECKED, one_reads, read_checked, write_checked
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_SCAN_IDS = 1 << 22
_told: set[Path] = set()
"""Sets that this process told of."""


@dataclass(frozen=True)
class _Beside:
    """Where it is kept what reading a whole set found out: in its folder, or beside its file."""

    tokens: Path

    @property
    def checked(self) -> Path:
        if self.tokens.is_dir():
            return self.tokens / CHECKED
        return self.tokens.with_name(f"{self.tokens.name}.checked.json")


@dataclass(frozen=True)
class ForeignSet(Tokens):
    """One split of a set: all, train or val.

    path: as given. asked: with the dtype that was decided. files: all that decide tokens and documents.
    """

    path: Path
    split: str
    asked: Asked
    tokens: Runs
    documents: Values | None
    files: tuple[Path, ...]
    vocab_size: int
    tokenizer: str | None
    fingerprint: str
    begin_ids: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return str(self.path) if self.split == "all" else f"{self.path} ({self.split})"

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer or UNKNOWN

    @property
    def file_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def extents(self) -> Extents:
        return self.tokens.extents

    def __getstate__(self) -> dict[str, Any]:
        """Without the maps: another process maps the files itself."""
        return {**self.__dict__, "tokens": None, "documents": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _, layout = open_layouts(state["path"], state["asked"])[state["split"]]
        self.__dict__.update({**state, "tokens": layout.tokens, "documents": layout.documents})


def open_foreign(path: Path, asked: Asked) -> list[ForeignSet]:
    """The set at a path, or its train and val.

    All of it is read once, for its checksum and the range of its ids; what was found is kept in its folder
    while the files are in the same state, or in the user's cache where that folder cannot be written.

    Raises:
        UserError: not of a known format, damaged, its dtype not clear, or made with another vocabulary.
    """
    try:
        if read_checked(beside := _Beside(path)):
            return _open(path, asked)
        with one_reads(beside, str(path)):
            return _open(path, asked)
    except OSError as error:
        raise UserError(
            f"{error.filename or path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error


def _open(path: Path, asked: Asked) -> list[ForeignSet]:
    beside = _Beside(path)
    known = _known(read_checked(beside))
    decided = _as_decided(path, known, asked)
    layouts = open_layouts(path, decided)
    found = {
        split: _facts(path, known.get(split), layout, asked.vocab_size)
        for split, (_, layout) in layouts.items()
    }
    sets = [_set_of(path, split, *layouts[split], facts, asked) for split, facts in found.items()]
    if found != known:
        write_checked(beside, {"splits": found})
    if path.absolute() not in _told:
        _told.add(path.absolute())
        _tell(sets, [layout for _, layout in layouts.values()])
    return sets


def _set_of(
    path: Path, split: str, kind: Kind, layout: Layout, facts: dict[str, Any], asked: Asked
) -> ForeignSet:
    dtype = layout.tokens.dtype.name
    if asked.dtype not in (AUTO, dtype):
        raise UserError(
            f"{path} holds {dtype} ({kind.name} says so), not {asked.dtype}. Leave dataset.dtype out",
            code="dtype-contradicts-format",
        )
    content = {"format": kind.name, "dtype": layout.tokens.dtype.str, "files": facts["sha256"]}
    return ForeignSet(
        path=path,
        split=split,
        asked=Asked(dtype, asked.vocab_size, is_checked=True),
        tokens=layout.tokens,
        documents=layout.documents,
        files=layout.files,
        vocab_size=_vocab_size(path, kind, layout, facts, asked),
        tokenizer=layout.tokenizer,
        fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        begin_ids=layout.begin_ids,
    )


def _vocab_size(path: Path, kind: Kind, layout: Layout, facts: dict[str, Any], asked: Asked) -> int:
    """Of the tokenizer, else as the files say, else one more than the largest id."""
    said, wanted = layout.vocab_size, asked.vocab_size
    if said is not None and wanted is not None and said != wanted:
        by = f" ({layout.tokenizer})" if layout.tokenizer else ""
        raise UserError(
            f"{path} was made with a vocabulary of {said:,} ids{by}, this run's tokenizer has {wanted:,}. "
            "Give the one it was made with (tokenizer=...)",
            code="vocabulary-differs",
        )
    size: int = next((n for n in (wanted, said) if n is not None), facts["max_id"] + 1)
    if facts["min_id"] < 0 or facts["max_id"] >= size:
        wrong = facts["min_id"] if facts["min_id"] < 0 else facts["max_id"]
        raise UserError(
            f"{path} ({kind.name}, {layout.tokens.dtype.name}) holds the id {wrong:,}, outside the "
            f"vocabulary of {size:,} ids (0 to {size - 1:,}). It was made with another tokenizer: give the "
            "one it was made with (tokenizer=...); or its ids are of another dtype (dataset.dtype=...), "
            "where it does not say so itself",
            code="id-outside-vocabulary",
        )
    return size


def _known(checked: dict[str, Any]) -> dict[str, Any]:
    """What an earlier reading found out, by split; empty where that is not as it is written here."""
    splits = checked.get("splits")
    wanted = {"files", "dtype", "tokens", "asked_vocab_size", "sha256", "max_id", "min_id"}
    if not isinstance(splits, dict):
        return {}
    is_whole = all(isinstance(facts, dict) and set(facts) == wanted for facts in splits.values())
    return splits if is_whole else {}


def _as_decided(path: Path, known: dict[str, Any], asked: Asked) -> Asked:
    """What an earlier reading decided, where all files are as they were then."""
    folder = path if path.is_dir() else path.parent
    facts = list(known.values())
    if not facts or not all(_state(folder / name) == state for one in facts for name, state in one["files"]):
        return asked
    same = all(one["asked_vocab_size"] == asked.vocab_size for one in facts)
    dtype = facts[0]["dtype"] if asked.dtype == AUTO and same else asked.dtype
    return Asked(dtype, asked.vocab_size, is_checked=True)


def _facts(
    path: Path, known: dict[str, Any] | None, layout: Layout, vocab_size: int | None
) -> dict[str, Any]:
    """Checksums of the files and the range of the ids, read in blocks where they are not known."""
    folder = path if path.is_dir() else path.parent
    key = {
        "files": [[os.path.relpath(file, folder), _state(file)] for file in layout.files],
        "dtype": layout.tokens.dtype.name,
        "tokens": len(layout.tokens),
    }
    if known is not None and all(known[name] == value for name, value in key.items()):
        return {**known, "asked_vocab_size": vocab_size}
    tokens = layout.tokens
    if not len(tokens):
        raise UserError(f"{path} holds no tokens", code="no-tokens")
    log.info("reading %s once to check its ids", path)
    largest = smallest = 0
    for start in range(0, len(tokens), _SCAN_IDS):
        block = tokens[start : start + _SCAN_IDS]
        largest, smallest = max(largest, int(block.max())), min(smallest, int(block.min()))
    checksums = [atomic_files.file_sha256(file) for file in layout.files]
    return {
        **key, "asked_vocab_size": vocab_size, "sha256": checksums, "max_id": largest, "min_id": smallest,
    }  # fmt: skip


def _state(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _tell(sets: list[ForeignSet], layouts: list[Layout]) -> None:
    for one, layout in zip(sets, layouts, strict=True):
        log.warning(
            "%s: %s tokens of %s%s; which text and tokenizer they are from cannot be checked, their ids "
            "fit the vocabulary",
            one.name,
            f"{one.n_tokens:,}",
            layout.tokens.dtype.name,
            f" ({layout.told})" if layout.told else "",
        )
