"""Read and check the manifest of a token set. docs/tokenize.md describes its fields."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from data_loading.tokens.json_shape import shape_problem
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from memory.files.file_kinds import HEAD_BYTES, not_expected

FORMAT = "highwater token set"
FORMAT_VERSION, SHARDS_VERSION = 1, 2
"""Versions of the manifest of a set in one file, and of one in shards, which is the newest."""
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
"""Fields of every manifest."""
_ONE_FILE_SHAPE = {"checksums": {"bytes": int, "blocks": [str], "documents": str}}
_SHARDS_SHAPE = {
    "checksums": {"bytes": int},
    "shard_tokens": int,
    "shards": [{"name": str, "tokens": int, "documents": int, "blocks": [str], "documents_checksum": str}],
    "earlier": [str],
    "generations": [{"sources": int, "tokens": int, "shards": int}],
}
_OPTIONAL_OF_SOURCE = {
    "documents": int, "tokens": int, "cleaned": {"bytes": int}, "duplicates": {"bytes": int},
}  # fmt: skip


class LaterVersion(UserError):
    """A manifest of a version that this program does not know."""

    code = "version-too-new"


def fingerprint_of(sources: list[dict[str, Any]], tokenizer_hash: str, options: dict[str, Any]) -> str:
    """Return the SHA-256 of what decides the ids: the same for every engine, worker count and place."""
    facts = {
        "sources": [source["content_hash"] for source in sources],
        "tokenizer": tokenizer_hash,
        "options": options,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path, version: str | None = None) -> dict[str, Any] | None:
    """Return the manifest of the tokens at `path`, None if there is none.

    Args:
        path: X.npy, or a folder of shards.
        version: As in SetFiles.

    Raises:
        UserError: It cannot be read, is damaged, or has a version that this program does not know.
    """
    files = SetFiles(path, version)
    try:
        data = files.manifest.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(
            f"{files.manifest} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    return parse_manifest(data, str(files.manifest), is_folder=files.is_folder)


def parse_manifest(data: bytes, name: str, *, is_folder: bool) -> dict[str, Any]:
    """Return the manifest in these bytes.

    Args:
        data: Content of the file.
        name: Path or address of the file.
        is_folder: Whether the set is in shards.

    Raises:
        UserError: It is damaged, no manifest, or has a version that this program does not know.
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
    problem = shape_problem(manifest, {**_SHAPE, **(_SHARDS_SHAPE if is_folder else _ONE_FILE_SHAPE)})
    problem = problem or _contradiction(manifest)
    if problem is not None:
        raise UserError(
            f"{name} is damaged: {problem}. Copy it again, or tokenize again with --overwrite",
            code="manifest-damaged",
        )
    return manifest


def _contradiction(manifest: dict[str, Any]) -> str | None:
    """Return a field that contradicts the others, None if there is none."""
    tokenizer, shards = manifest["tokenizer"], manifest.get("shards", ())
    if manifest["checksums"]["bytes"] < 1:
        return f"checksums.bytes is {manifest['checksums']['bytes']}"
    if manifest["fingerprint"] != fingerprint_of(
        manifest["sources"], tokenizer["content_hash"], manifest["options"]
    ):
        return "fingerprint is not that of its sources, tokenizer and options"
    if tokenizer["eot_id"] is not None and not 0 <= tokenizer["eot_id"] < tokenizer["vocab_size"]:
        return f"tokenizer.eot_id {tokenizer['eot_id']} is outside its {tokenizer['vocab_size']:,} ids"
    for number, source in enumerate(manifest["sources"]):
        optional = {key: _OPTIONAL_OF_SOURCE[key] for key in source.keys() & _OPTIONAL_OF_SOURCE}
        if (problem := shape_problem(source, optional, f"sources.{number}.")) is not None:
            return problem
    for shard in shards:
        if Path(shard["name"]).name != shard["name"]:
            return f"the shard {shard['name']!r} is no file of its folder"
    for counted in ("tokens", "documents") if "shards" in manifest else ():
        found = sum(shard[counted] for shard in shards)
        if found != manifest[counted]:
            return f"its shards have {found:,} {counted}, it says {manifest[counted]:,}"
    if "val" in manifest and not _are_ranges(manifest["val"], manifest["tokens"]):
        return f"val {manifest['val']!r} is not held-out ranges of its {manifest['tokens']:,} tokens"
    return None


def _are_ranges(val: Any, tokens: int) -> bool:
    """Whether ranges ascend, are disjoint and not empty, and leave something to train on."""
    try:
        borders = [border for part in val["ranges"] for border in part]
        in_order = all(one < other for one, other in zip(borders[::2], borders[1::2], strict=True))
        return in_order and borders == sorted(borders) and borders[0] > 0 and borders[-1] <= tokens
    except (TypeError, KeyError, ValueError, IndexError):
        return False
