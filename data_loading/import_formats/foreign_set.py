"""Tokens of another program's files, checked once and then read in place."""

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
from data_loading.import_formats.format import Asked, Kind, SplitLayout
from data_loading.import_formats.recognize import open_layouts
from data_loading.tokens.id_range import check_id_range, read_id_range
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.tokens import UNKNOWN, Tokens
from data_loading.verification_cache import CHECKED, one_reads, read_checked, write_checked
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_FACTS = {"files", "dtype", "tokens", "asked_vocab_size", "sha256", "max_id", "min_id"}
"""Facts of each split in the file of `_Cached`."""
_logged: set[Path] = set()
"""Sets that this process has described in its log."""


@dataclass(frozen=True)
class _Cached:
    """Place of the facts that were found by reading a whole set: in its folder, or next to its file."""

    tokens: Path

    @property
    def checked(self) -> Path:
        if self.tokens.is_dir():
            return self.tokens / CHECKED
        return self.tokens.with_name(f"{self.tokens.name}.checked.json")


@dataclass(frozen=True)
class ForeignSet(Tokens):
    """One split of a set."""

    path: Path
    """Path that the user gave."""
    split: str
    """all, train or val."""
    asked: Asked
    """With the dtype that was chosen."""
    tokens: Runs
    documents: Values | None
    files: tuple[Path, ...]
    """Files that decide tokens and documents."""
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

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without maps: another process maps the files itself."""
        return {**self.__dict__, "tokens": None, "documents": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _, layout = open_layouts(state["path"], state["asked"])[state["split"]]
        self.__dict__.update({**state, "tokens": layout.tokens, "documents": layout.documents})


def open_foreign(path: Path, asked: Asked) -> list[ForeignSet]:
    """Open the set at a path: one, or its train and val.

    All of it is read once, for its checksums and the range of its ids. These facts are stored in its folder,
    or in the user's cache if that folder cannot be written, and hold while the files are unchanged.

    Raises:
        UserError: The format or dtype is not known, files are damaged, or the vocabulary is another one.
    """
    try:
        if read_checked(_Cached(path)):
            return _open(path, asked)
        with one_reads(_Cached(path), str(path)):
            return _open(path, asked)
    except OSError as error:
        raise UserError(
            f"{error.filename or path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error


def _open(path: Path, asked: Asked) -> list[ForeignSet]:
    known = _known(path)
    layouts = open_layouts(path, _with_known_dtype(path, known, asked))
    found = {
        split: _facts(path, known.get(split), layout, asked.vocab_size)
        for split, (_, layout) in layouts.items()
    }
    sets = [_set_of(path, split, *layouts[split], facts, asked) for split, facts in found.items()]
    if found != known:
        write_checked(_Cached(path), {"splits": found})
    if path.absolute() not in _logged:
        _logged.add(path.absolute())
        for one, (_, layout) in zip(sets, layouts.values(), strict=True):
            _log_unchecked(one, layout)
    return sets


def _set_of(
    path: Path, split: str, kind: Kind, layout: SplitLayout, facts: dict[str, Any], asked: Asked
) -> ForeignSet:
    dtype = layout.tokens.dtype.name
    if asked.dtype not in (AUTO, dtype):
        raise UserError(
            f"{path} holds {dtype} ({kind.name} says so), not {asked.dtype}. Leave dataset.dtype out",
            code="dtype-contradicts-format",
        )
    stored, wanted = layout.vocab_size, asked.vocab_size
    if stored is not None and wanted is not None and stored != wanted:
        by = f" ({layout.tokenizer})" if layout.tokenizer else ""
        raise UserError(
            f"{path} was made with a vocabulary of {stored:,} ids{by}, this run's tokenizer has {wanted:,}. "
            "Give the one it was made with (tokenizer=...)",
            code="vocabulary-differs",
        )
    content = {"format": kind.name, "dtype": layout.tokens.dtype.str, "files": facts["sha256"]}
    return ForeignSet(
        path=path,
        split=split,
        asked=Asked(dtype, asked.vocab_size, is_checked=True),
        tokens=layout.tokens,
        documents=layout.documents,
        files=layout.files,
        vocab_size=check_id_range(
            f"{path} ({kind.name}, {dtype})",
            facts["min_id"],
            facts["max_id"],
            stored if wanted is None else wanted,
            "; or its ids have another dtype (dataset.dtype=...), if its format does not name it",
        ),
        tokenizer=layout.tokenizer,
        fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        begin_ids=layout.begin_ids,
    )


def _known(path: Path) -> dict[str, Any]:
    """Return the stored facts by split; empty if they are damaged."""
    splits = read_checked(_Cached(path)).get("splits")
    if not isinstance(splits, dict):
        return {}
    is_whole = all(isinstance(facts, dict) and set(facts) == _FACTS for facts in splits.values())
    return splits if is_whole else {}


def _with_known_dtype(path: Path, known: dict[str, Any], asked: Asked) -> Asked:
    """Return `asked` with the dtype that was chosen before, if all files are unchanged since."""
    folder = path if path.is_dir() else path.parent
    facts = list(known.values())
    if not facts or not all(_state(folder / name) == state for one in facts for name, state in one["files"]):
        return asked
    same = all(one["asked_vocab_size"] == asked.vocab_size for one in facts)
    dtype = facts[0]["dtype"] if asked.dtype == AUTO and same else asked.dtype
    return Asked(dtype, asked.vocab_size, is_checked=True)


def _facts(
    path: Path, known: dict[str, Any] | None, layout: SplitLayout, vocab_size: int | None
) -> dict[str, Any]:
    """Return checksums of the files and the range of ids; reads the files if they changed since."""
    folder, tokens = path if path.is_dir() else path.parent, layout.tokens
    key = {
        "files": [[os.path.relpath(file, folder), _state(file)] for file in layout.files],
        "dtype": tokens.dtype.name,
        "tokens": len(tokens),
    }
    if known is not None and all(known[name] == value for name, value in key.items()):
        return {**known, "asked_vocab_size": vocab_size}
    if not len(tokens):
        raise UserError(f"{path} holds no tokens", code="no-tokens")
    log.info("reading %s once to check its ids", path)
    smallest, largest = read_id_range(tokens)
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


def _log_unchecked(found: ForeignSet, layout: SplitLayout) -> None:
    log.warning(
        "%s: %s tokens of %s%s; which text and tokenizer they are from cannot be checked, their ids "
        "fit the vocabulary",
        found.name,
        f"{found.n_tokens:,}",
        layout.tokens.dtype.name,
        f" ({layout.dtype_reason})" if layout.dtype_reason else "",
    )
