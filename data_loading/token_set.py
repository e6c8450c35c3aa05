"""A token set on disk: its manifest, and opening it so that a wrong one is never silently used."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import durable
from conf import UserError
from data_loading.checked import read_checked, write_checked
from data_loading.content import verify_content
from data_loading.npy import open_npy
from data_loading.set_files import SetFiles, settle

log = logging.getLogger("data_loading")

FORMAT = "highwater token set"
FORMAT_VERSION = 1
_SCAN_IDS = 1 << 22
_SHAPE = {
    "version": int,
    "tokenizer": {
        "name": str, "content_hash": str, "vocab_size": int, "eot_id": int | None, "eot_appended": bool,
    },
    "dtype": str,
    "tokens": int,
    "documents": int,
    "sources": [{"path": str, "bytes": int, "content_hash": str}],
    "options": dict,
    "fingerprint": str,
    "checksums": {"bytes": int, "blocks": [str], "documents": str},
}  # fmt: skip
"""What every manifest holds; docs/tokenize.md says what it means."""
_ATTEMPTS = 5
_warned: set[Path] = set()
"""Lone files that this process was warned of."""


@dataclass(frozen=True)
class TokenSet:
    """Tokens on disk.

    tokens: 1-D memory map of integers. documents: uint64 starts in `tokens`, ascending from 0; None
    where nothing says. manifest: None for a lone file from elsewhere. vocab_size: ids are below it.
    fingerprint: sha256 of what decides the ids (sources, tokenizer, options), or of a lone file's bytes.
    """

    path: Path
    tokens: np.ndarray
    documents: np.ndarray | None
    manifest: dict[str, Any] | None
    vocab_size: int
    fingerprint: str

    def __getstate__(self) -> dict[str, Any]:
        """Without the maps: another process maps the files itself."""
        return {**self.__dict__, "tokens": None, "documents": self.documents is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = SetFiles(state["path"])
        documents = open_npy(files.documents) if state["documents"] else None
        self.__dict__.update({**state, "tokens": open_npy(files.tokens), "documents": documents})

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def eot_id(self) -> int | None:
        return self.manifest["tokenizer"]["eot_id"] if self.manifest else None

    @property
    def tokenizer_name(self) -> str:
        return self.manifest["tokenizer"]["name"] if self.manifest else "unknown"


def fingerprint_of(sources: list[dict[str, Any]], tokenizer_hash: str, options: dict[str, Any]) -> str:
    """The same for every engine, block size, worker count and place on disk."""
    facts = {
        "sources": [source["content_hash"] for source in sources],
        "tokenizer": tokenizer_hash,
        "options": options,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of the tokens at `path`; None where there is none.

    Raises:
        UserError: it cannot be read, or is of a version that this program does not know.
    """
    manifest_path = SetFiles(path).manifest
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{manifest_path} is no whole manifest ({error}). Tokenize again with --overwrite"
        ) from None
    except OSError as error:
        raise UserError(f"{manifest_path} cannot be read: {error.strerror}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{manifest_path} is no manifest of a token set. Tokenize again with --overwrite")
    version = manifest.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UserError(
            f"{manifest_path} is of version {version}, this program reads up to "
            f"{FORMAT_VERSION}. Update it, or tokenize again with --overwrite"
        )
    wrong = _first_difference(manifest, _SHAPE, "") or _contradiction(manifest)
    if wrong is not None:
        raise UserError(
            f"{manifest_path} is damaged: {wrong}. Copy it again, or tokenize again with --overwrite"
        )
    return manifest


def _contradiction(manifest: dict[str, Any]) -> str | None:
    """What in a manifest does not go with the rest of it."""
    tokenizer = manifest["tokenizer"]
    if manifest["checksums"]["bytes"] < 1:
        return f"checksums.bytes is {manifest['checksums']['bytes']}"
    fingerprint = fingerprint_of(manifest["sources"], tokenizer["content_hash"], manifest["options"])
    if manifest["fingerprint"] != fingerprint:
        return "fingerprint is not that of its sources, tokenizer and options"
    if tokenizer["eot_id"] is not None and not 0 <= tokenizer["eot_id"] < tokenizer["vocab_size"]:
        return f"tokenizer.eot_id {tokenizer['eot_id']} is outside its {tokenizer['vocab_size']:,} ids"
    return None


def _first_difference(value: Any, shape: Any, where: str) -> str | None:
    """How a value is not of the shape: keys of objects, one kind of item of a list, kinds of the rest."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where.rstrip('.') or 'it'} is no object"
        for key, inner in shape.items():
            if key not in value:
                return f"{where}{key} is missing"
            if (found := _first_difference(value[key], inner, f"{where}{key}.")) is not None:
                return found
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where.rstrip('.')} is no list"
        wrong = (_first_difference(item, shape[0], f"{where}{i}.") for i, item in enumerate(value))
        return next(filter(None, wrong), None)
    return None if isinstance(value, shape) else f"{where.rstrip('.')} is {value!r}"


def open_token_set(path: Path, vocab_size: int | None = None) -> TokenSet:
    """Memory-map a token set and hold its parts against each other.

    vocab_size: of the tokenizer that a lone file without manifest was made with; None: one more
    than its largest id.

    Raises:
        UserError: broken, or its parts do not belong together; names both sides and what mends it.
    """
    files = SetFiles(path)
    for _ in range(_ATTEMPTS):
        settle(files)
        before = _stamp(files.manifest)
        opened, wrong = None, None
        try:
            opened = _open(files, vocab_size)
        except UserError as error:
            wrong = error
        if _stamp(files.manifest) == before and not files.commit.exists():
            if opened is None:
                raise wrong or AssertionError
            return opened
    raise UserError(f"{path} is being replaced again and again; wait until that has ended")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _open(files: SetFiles, vocab_size: int | None) -> TokenSet:
    manifest = read_manifest(files.tokens)
    tokens = open_npy(files.tokens)
    if manifest is None:
        return _open_lone(files, tokens, vocab_size)
    if (len(tokens), tokens.dtype.str) != (manifest["tokens"], manifest["dtype"]):
        raise UserError(
            f"{files.tokens} has {len(tokens):,} tokens of {tokens.dtype.str}, its manifest "
            f"{files.manifest.name} says {manifest['tokens']:,} of {manifest['dtype']}: one of them is "
            "from another set. Copy both again, or tokenize again with --overwrite"
        )
    if not files.documents.exists():
        raise UserError(
            f"{files.documents} is missing: it says where the documents of {files.tokens.name} start, which "
            "decides what is held out. Copy all files of the set again, or tokenize again with --overwrite"
        )
    documents = open_npy(files.documents)
    if len(documents) != manifest["documents"]:
        raise UserError(
            f"{files.documents} has {len(documents):,} documents, {files.manifest.name} says "
            f"{manifest['documents']:,}. Copy all files of the set again, or tokenize again with "
            "--overwrite"
        )
    verify_content(files, tokens, manifest)
    vocab_size = manifest["tokenizer"]["vocab_size"]
    return TokenSet(files.tokens, tokens, documents, manifest, vocab_size, manifest["fingerprint"])


def _open_lone(files: SetFiles, tokens: np.ndarray, vocab_size: int | None) -> TokenSet:
    facts = _scan_once(files, tokens)
    size = facts["max_id"] + 1 if vocab_size is None else vocab_size
    if facts["min_id"] < 0 or facts["max_id"] >= size:
        wrong = facts["min_id"] if facts["min_id"] < 0 else facts["max_id"]
        raise UserError(
            f"{files.tokens} holds the id {wrong:,}, outside the vocabulary of {size:,} ids (0 to "
            f"{size - 1:,}). It was made with another tokenizer: give the one it was made with "
            "(tokenizer=...)"
        )
    if files.tokens.absolute() not in _warned:
        _warned.add(files.tokens.absolute())
        log.warning(
            "%s has no manifest: which text and tokenizer it is from cannot be checked; its ids (at most %s) "
            "fit the vocabulary",
            files.tokens,
            f"{facts['max_id']:,}",
        )
    return TokenSet(files.tokens, tokens, None, None, size, facts["sha256"])


def _scan_once(files: SetFiles, tokens: np.ndarray) -> dict[str, Any]:
    """Smallest and largest id and the file's sha256, read in blocks once and then kept beside it."""
    stat = files.tokens.stat()
    key = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    known = read_checked(files)
    if all(known.get(name) == value for name, value in key.items()) and "sha256" in known:
        return known
    log.info("reading %s once to check its ids", files.tokens)
    largest, smallest = 0, 0
    for start in range(0, len(tokens), _SCAN_IDS):
        block = tokens[start : start + _SCAN_IDS]
        largest, smallest = max(largest, int(block.max())), min(smallest, int(block.min()))
    facts = {**key, "max_id": largest, "min_id": smallest, "sha256": durable.file_sha256(files.tokens)}
    write_checked(files, {**known, **facts})
    return facts
