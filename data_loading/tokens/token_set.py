"""A token set on disk, opened so that a damaged or mixed one is refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.tokens.checksums import verify_content
from data_loading.tokens.commit import settle
from data_loading.tokens.id_range import check_id_range, read_id_range
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.npy import open_npy
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Part, Shards, open_parts, parts_of
from data_loading.tokens.tokens import UNKNOWN, Tokens
from data_loading.tokens.truncated_documents import earlier_manifests, refuse_cut
from data_loading.verification_cache import read_checked, write_checked
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_ATTEMPTS = 5
_warned: set[Path] = set()
"""Lone files about which this process has logged a warning."""


@dataclass(frozen=True)
class TokenSet(Tokens):
    """Tokens on disk, memory-mapped."""

    path: Path
    """X.npy, or a folder of shards."""
    tokens: Values
    documents: Values | None
    """uint64 starts in `tokens`, ascending from 0; None if they are not known."""
    manifest: dict[str, Any] | None
    """None for a lone file that another program wrote."""
    vocab_size: int
    fingerprint: str
    """SHA-256 of what decides the ids (sources, tokenizer, options), or of a lone file's bytes."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without maps: another process maps the files itself."""
        return {**self.__dict__, "tokens": None, "documents": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files, manifest = SetFiles(state["path"]), state["manifest"]
        opened = open_parts(parts_of(files, manifest)) if manifest else (open_npy(files.tokens), None)
        self.__dict__.update({**state, "tokens": opened[0], "documents": opened[1]})

    @property
    def file_bytes(self) -> int:
        parts = parts_of(SetFiles(self.path), self.manifest) if self.manifest else None
        paths = [self.path] if parts is None else [part.tokens_path for part in parts]
        return sum(path.stat().st_size for path in paths)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def derived_folder(self) -> Path:
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


def open_token_set(path: Path, vocab_size: int | None = None, version: str | None = None) -> TokenSet:
    """Memory-map a token set and check that its parts belong together.

    Args:
        path: X.npy, or a folder of shards.
        vocab_size: Of the tokenizer of a lone file without manifest; None: one more than its largest id.
        version: As in SetFiles, of a set that was appended to since.

    Raises:
        UserError: It is damaged, or its parts do not belong together.
    """
    files = SetFiles(path, version)
    for _ in range(_ATTEMPTS):
        settle(files)
        before = _stamp(files.manifest)
        opened, problem = None, None
        try:
            opened = _open(files, vocab_size)
        except UserError as error:
            problem = error
        if _stamp(files.manifest) == before and not files.commit.exists():
            if opened is None:
                raise problem or AssertionError
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
        return _open_lone(files, vocab_size)
    tokens, documents = open_parts(parts_of(files, manifest))
    verify_content(files, manifest)
    refuse_cut(
        str(files.tokens), manifest, files.tokenizer, documents, earlier=earlier_manifests(files, manifest)
    )
    vocab_size = manifest["tokenizer"]["vocab_size"]
    return TokenSet(files.tokens, tokens, documents, manifest, vocab_size, manifest["fingerprint"])


def _open_lone(files: SetFiles, vocab_size: int | None) -> TokenSet:
    """Open a file without manifest. Its ids are read once; the result is stored next to it."""
    tokens, stat = open_npy(files.tokens), files.tokens.stat()
    key = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    facts = read_checked(files)
    if "sha256" not in facts or any(facts.get(name) != value for name, value in key.items()):
        log.info("reading %s once to check its ids", files.tokens)
        smallest, largest = read_id_range(tokens)
        digest = atomic_files.file_sha256(files.tokens)
        facts = {**facts, **key, "max_id": largest, "min_id": smallest, "sha256": digest}
        write_checked(files, facts)
    size = check_id_range(str(files.tokens), facts["min_id"], facts["max_id"], vocab_size)
    if files.tokens.absolute() not in _warned:
        _warned.add(files.tokens.absolute())
        log.warning(
            "%s has no manifest: which text and tokenizer it is from cannot be checked; its ids (at most %s) "
            "fit the vocabulary",
            files.tokens,
            f"{facts['max_id']:,}",
        )
    return TokenSet(files.tokens, tokens, None, None, size, facts["sha256"])
