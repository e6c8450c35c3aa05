"""A token set on disk: its manifest, and opening it so that a wrong one is never silently used."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.tokens.checksums import verify_content
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles, settle
from data_loading.tokens.shards import Part, Shards, map_part, open_parts, parts_of
from data_loading.tokens.tokens import UNKNOWN, Tokens
from data_loading.tokens.truncated_documents import earlier_manifests, refuse_cut
from data_loading.tokens.verification_cache import read_checked, write_checked
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from memory.file_kinds import HEAD_BYTES, not_expected

log = logging.getLogger("data_loading")

FORMAT = "highwater token set"
FORMAT_VERSION, SHARDS_VERSION = 1, 2
"""Of the manifest of a set in one file, and of one in shards, which is the newest there is."""
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
}  # fmt: skip
"""What every manifest holds; docs/tokenize.md says what it means."""
_ONE_FILE_SHAPE = {"checksums": {"bytes": int, "blocks": [str], "documents": str}}
_SHARDS_SHAPE = {
    "checksums": {"bytes": int},
    "shard_tokens": int,
    "shards": [{"name": str, "tokens": int, "documents": int, "blocks": [str], "documents_checksum": str}],
    "earlier": [str],
    "generations": [{"sources": int, "tokens": int, "shards": int}],
}
_FACTS = {"documents": int, "tokens": int, "cleaned": {"bytes": int}, "duplicates": {"bytes": int}}
"""What a source may have besides."""
_ATTEMPTS = 5
_warned: set[Path] = set()
"""Lone files that this process was warned of."""


class LaterVersion(UserError):
    """A manifest of a version that this program does not know."""

    code = "version-too-new"


@dataclass(frozen=True)
class TokenSet(Tokens):
    """Tokens on disk.

    path: X.npy, or a folder of shards. tokens: 1-D memory map of integers, or one of each shard
    (`Shards`). documents: uint64 starts in `tokens`, ascending from 0; None where nothing says. manifest:
    None for a lone file from elsewhere. vocab_size: ids are below it. fingerprint: sha256 of what decides
    the ids (sources, tokenizer, options), or of a lone file's bytes.
    """

    path: Path
    tokens: Values
    documents: Values | None
    manifest: dict[str, Any] | None
    vocab_size: int
    fingerprint: str

    def __getstate__(self) -> dict[str, Any]:
        """Without the maps: another process maps the files itself."""
        return {**self.__dict__, "tokens": None, "documents": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = SetFiles(state["path"])
        if state["manifest"] is None:
            opened: tuple[Values, Values | None] = open_npy(files.tokens), None
        else:
            opened = open_parts(parts_of(files, state["manifest"]), map_part)
        self.__dict__.update({**state, "tokens": opened[0], "documents": opened[1]})

    @property
    def file_bytes(self) -> int:
        """Of the token files."""
        files = SetFiles(self.path)
        paths = (
            [part.tokens_path for part in parts_of(files, self.manifest)] if self.manifest else [self.path]
        )
        return sum(path.stat().st_size for path in paths)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def beside(self) -> Path:
        return SetFiles(self.path).derived

    @property
    def held_out(self) -> tuple[range, ...] | None:
        made = self.manifest.get("val") if self.manifest else None
        return tuple(range(*part) for part in made["ranges"]) if made else None

    @property
    def sources(self) -> list[tuple[int, int]]:
        sources = self.manifest["sources"] if self.manifest else []
        if not all("tokens" in source and "documents" in source for source in sources):
            return []
        return [(source["tokens"], source["documents"]) for source in sources]

    @property
    def file_borders(self) -> list[int]:
        return self.tokens.first.tolist() if isinstance(self.tokens, Shards) else super().file_borders

    @property
    def checksums(self) -> tuple[list[Part], int]:
        if self.manifest is None:
            return super().checksums
        return parts_of(SetFiles(self.path), self.manifest), self.manifest["checksums"]["bytes"]

    @property
    def eot_id(self) -> int | None:
        return self.manifest["tokenizer"]["eot_id"] if self.manifest else None

    @property
    def tokenizer_name(self) -> str:
        return self.manifest["tokenizer"]["name"] if self.manifest else UNKNOWN


def fingerprint_of(sources: list[dict[str, Any]], tokenizer_hash: str, options: dict[str, Any]) -> str:
    """The same for every engine, block size, worker count and place on disk."""
    facts = {
        "sources": [source["content_hash"] for source in sources],
        "tokenizer": tokenizer_hash,
        "options": options,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path, version: str | None = None) -> dict[str, Any] | None:
    """The manifest of the tokens at `path`; None where there is none. version: as in SetFiles.

    Raises:
        UserError: it cannot be read, or is of a version that this program does not know.
    """
    manifest_path = SetFiles(path, version).manifest
    try:
        data = manifest_path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(
            f"{manifest_path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    return parse_manifest(data, str(manifest_path), is_folder=SetFiles(path).is_folder)


def parse_manifest(data: bytes, name: str, *, is_folder: bool) -> dict[str, Any]:
    """The manifest in these bytes. name: where they are from. is_folder: of a set in shards.

    Raises:
        UserError: it is none, damaged, or of a version that this program does not know.
    """
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        if (other := not_expected(name, "the manifest of a token set", head=data[:HEAD_BYTES])) is not None:
            raise UserError(other, code="manifest-damaged") from None
        raise UserError(
            f"{name} is no whole manifest ({error}). Tokenize again with --overwrite", code="manifest-damaged"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(
            f"{name} is no manifest of a token set. Tokenize again with --overwrite", code="manifest-damaged"
        )
    version = manifest.get("version")
    if isinstance(version, int) and version > SHARDS_VERSION:
        raise LaterVersion(
            f"{name} is of version {version}, this program reads up to "
            f"{SHARDS_VERSION}. Update it, or tokenize again with --overwrite"
        )
    layout = _SHARDS_SHAPE if is_folder else _ONE_FILE_SHAPE
    wrong = _first_difference(manifest, {**_SHAPE, **layout}, "") or _contradiction(manifest)
    if wrong is not None:
        raise UserError(
            f"{name} is damaged: {wrong}. Copy it again, or tokenize again with --overwrite",
            code="manifest-damaged",
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
    for number, source in enumerate(manifest["sources"]):
        wrong = _first_difference(source, {key: _FACTS[key] for key in source.keys() & _FACTS}, "")
        if wrong is not None:
            return f"of its sources.{number} {wrong}"
    for shard in manifest.get("shards", ()):
        if Path(shard["name"]).name != shard["name"]:
            return f"the shard {shard['name']!r} is no file of its folder"
    for counted in ("tokens", "documents") if "shards" in manifest else ():
        found = sum(shard[counted] for shard in manifest["shards"])
        if found != manifest[counted]:
            return f"its shards have {found:,} {counted}, it says {manifest[counted]:,}"
    if "val" in manifest and not _are_ranges(manifest["val"], manifest["tokens"]):
        return f"val {manifest['val']!r} is not held-out ranges of its {manifest['tokens']:,} tokens"
    return None


def _are_ranges(val: Any, tokens: int) -> bool:
    """Ascending, disjoint, none of them empty, and something is left to train on."""
    try:
        borders = [border for part in val["ranges"] for border in part]
        in_order = all(one < other for one, other in zip(borders[::2], borders[1::2], strict=True))
        return in_order and borders == sorted(borders) and borders[0] > 0 and borders[-1] <= tokens
    except (TypeError, KeyError, ValueError, IndexError):
        return False


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


def open_token_set(path: Path, vocab_size: int | None = None, version: str | None = None) -> TokenSet:
    """Memory-map a token set and hold its parts against each other.

    vocab_size: of the tokenizer that a lone file without manifest was made with; None: one more
    than its largest id. version: as in SetFiles, of a set that was appended to since.

    Raises:
        UserError: broken, or its parts do not belong together; names both sides and what mends it.
    """
    files = SetFiles(path, version)
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
    raise UserError(
        f"{path} is being replaced again and again; wait until that has ended", code="changed-while-read"
    )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _open(files: SetFiles, vocab_size: int | None) -> TokenSet:
    manifest = read_manifest(files.tokens, files.version)
    if manifest is None and files.is_folder:
        raise UserError(
            f"{files.tokens}: no token set there ({files.manifest} is missing)", code="no-token-set"
        )
    if manifest is None:
        return _open_lone(files, open_npy(files.tokens), vocab_size)
    tokens, documents = open_parts(
        parts_of(files, manifest), lambda part: _open_part(part, manifest["dtype"], files.manifest.name)
    )
    verify_content(files, manifest)
    refuse_cut(
        str(files.tokens), manifest, files.tokenizer, documents, earlier=earlier_manifests(files, manifest)
    )
    vocab_size = manifest["tokenizer"]["vocab_size"]
    return TokenSet(files.tokens, tokens, documents, manifest, vocab_size, manifest["fingerprint"])


def _open_part(part: Part, dtype: str, manifest_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Maps of tokens and document starts. Raises UserError where they are not as the manifest says."""
    tokens = open_npy(part.tokens_path)
    if (len(tokens), tokens.dtype.str) != (part.tokens, dtype):
        raise UserError(
            f"{part.tokens_path} has {len(tokens):,} tokens of {tokens.dtype.str}, its manifest "
            f"{manifest_name} says {part.tokens:,} of {dtype}: one of them is "
            "from another set. Copy both again, or tokenize again with --overwrite",
            code="tokens-not-of-manifest",
        )
    if not part.documents_path.exists():
        raise UserError(
            f"{part.documents_path} is missing: it says where the documents of {part.tokens_path.name} "
            "start, which decides what is held out. Copy all files of the set again, or tokenize again with "
            "--overwrite",
            code="documents-missing",
        )
    documents = open_npy(part.documents_path, may_be_empty=True)
    if len(documents) != part.documents:
        raise UserError(
            f"{part.documents_path} has {len(documents):,} documents, {manifest_name} says "
            f"{part.documents:,}. Copy all files of the set again, or tokenize again with "
            "--overwrite",
            code="documents-not-of-manifest",
        )
    return tokens, documents


def _open_lone(files: SetFiles, tokens: np.ndarray, vocab_size: int | None) -> TokenSet:
    facts = _scan_once(files, tokens)
    size = facts["max_id"] + 1 if vocab_size is None else vocab_size
    if facts["min_id"] < 0 or facts["max_id"] >= size:
        wrong = facts["min_id"] if facts["min_id"] < 0 else facts["max_id"]
        raise UserError(
            f"{files.tokens} holds the id {wrong:,}, outside the vocabulary of {size:,} ids (0 to "
            f"{size - 1:,}). It was made with another tokenizer: give the one it was made with "
            "(tokenizer=...)",
            code="id-outside-vocabulary",
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
    facts = {**key, "max_id": largest, "min_id": smallest, "sha256": atomic_files.file_sha256(files.tokens)}
    write_checked(files, {**known, **facts})
    return facts
