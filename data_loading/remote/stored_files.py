"""Files of a stored set: its manifest and tokenizer, and token files as blocks of bytes with checksums."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.remote.retry import Vanished
from data_loading.remote.store import Store
from data_loading.text_io.content_hash import ContentHash
from data_loading.tokenizers.read_files import TOKENIZER_FILES, holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tiktoken import RANKS_FILE, TIKTOKEN_FILE
from data_loading.tokens.npy import HEADER_BYTES, header
from data_loading.tokens.read_manifest import parse_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from experiment_utils.errors import UserError

_START_BYTES = 8
_DISK_BLOCK_BYTES = 4096


class StoredBlock(NamedTuple):
    """Bytes of an object that are verified together."""

    start: int
    stop: int
    checksum: str
    is_content_hash: bool = False
    """The checksum is a content hash (`content_hash.py`), not a plain SHA-256."""

    def hasher(self) -> Any:
        """Return a new hash object whose hex digest is compared with the checksum."""
        return ContentHash() if self.is_content_hash else hashlib.sha256()


@dataclass(frozen=True)
class StoredFile:
    """A local file: `header`, then consecutive blocks of the object `source`."""

    name: str
    source: str
    source_bytes: int
    header: bytes
    blocks: tuple[StoredBlock, ...]

    @property
    def file_bytes(self) -> int:
        return len(self.header) + self.blocks[-1].stop - self.blocks[0].start

    @property
    def checksum(self) -> str:
        """Checksum of the whole content; `mirror` marks objects with it."""
        if self.blocks[0].is_content_hash:
            return self.blocks[0].checksum
        return hashlib.sha256("".join(block.checksum for block in self.blocks).encode()).hexdigest()

    def offset(self, start: int) -> int:
        """Position in the file of the object's byte `start`."""
        return len(self.header) + start - self.blocks[0].start


class Head(NamedTuple):
    """The first tokens of a token file, in which windows of the file before it end."""

    part: int
    tokens: int


class Run(NamedTuple):
    """Consecutive tokens of a set that are in one file."""

    file: StoredFile
    first_token: int
    tokens: int


class SetGeometry:
    """Token files of a set (`parts`), their blocks, and the borders between them."""

    def __init__(self, files: SetFiles, manifest: dict[str, Any]) -> None:
        self.parts, self.dtype = parts_of(files, manifest), np.dtype(manifest["dtype"])
        self.borders = [*(part.first_token for part in self.parts), int(manifest["tokens"])]
        self._block_bytes: int = manifest["checksums"]["bytes"]
        self.block_tokens = self._block_bytes // self.dtype.itemsize

    def tokens_file(self, number: int, first: int = 0, stop: int | None = None) -> StoredFile:
        """The blocks first to stop of a token file as an .npy of their own; by default the whole file."""
        part = self.parts[number]
        end = HEADER_BYTES + part.tokens * self.dtype.itemsize
        starts = range(HEADER_BYTES, end, self._block_bytes)
        blocks = [
            StoredBlock(start, min(start + self._block_bytes, end), checksum)
            for start, checksum in zip(starts, part.blocks, strict=True)
        ]
        chosen, name = tuple(blocks[first:stop]), part.tokens_path.name
        if len(chosen) < len(blocks):
            name = f"{name.removesuffix('.npy')}.blocks{first}-{first + len(chosen)}.npy"
        tokens = (chosen[-1].stop - chosen[0].start) // self.dtype.itemsize
        return StoredFile(name, part.tokens_path.as_posix(), end, header(self.dtype, tokens), chosen)

    def documents_file(self, number: int) -> StoredFile:
        """The document starts of a token file."""
        part = self.parts[number]
        size, path = HEADER_BYTES + part.documents * _START_BYTES, part.documents_path
        block = StoredBlock(0, size, part.documents_checksum, is_content_hash=True)
        return StoredFile(path.name, path.as_posix(), size, b"", (block,))

    def head_file(self, head: Head) -> StoredFile:
        """The blocks that hold a head."""
        return self.tokens_file(head.part, 0, -(-head.tokens // self.block_tokens))

    def runs(self, ranges: Iterable[range]) -> list[Run]:
        """Files of whole blocks that hold these ranges of tokens, in order."""
        runs, ranges = [], list(ranges)
        for number, part in enumerate(self.parts):
            begin, size = part.first_token, self.block_tokens
            inside = [(max(r.start - begin, 0), min(r.stop - begin, part.tokens)) for r in ranges]
            wanted = {b for low, high in inside if low < high for b in range(low // size, -(-high // size))}
            stops = (block + 1 for block in sorted(wanted) if block + 1 not in wanted)
            for first, stop in zip(sorted(b for b in wanted if b - 1 not in wanted), stops, strict=True):
                count = min(stop * size, part.tokens) - first * size
                runs.append(Run(self.tokens_file(number, first, stop), begin + first * size, count))
        return runs

    def extents(self) -> Extents:
        """Lengths of the token files, which are in no buffer."""
        numbers, zeros = np.arange(len(self.parts)), np.zeros(len(self.parts), np.int64)
        return Extents(self.dtype, (), (), (), numbers, zeros, np.array(self.borders))


def rounded(size: int) -> int:
    """Bytes that a file of this size takes on a disk."""
    return -(-size // _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES


def fetch_manifest(store: Store) -> tuple[bytes, dict[str, Any]]:
    """Return the manifest as bytes and as an object.

    Raises:
        Vanished: there is no manifest.
        UserError: it is damaged, or the store does not answer.
    """
    files = store.address.files
    name = files.manifest.as_posix()
    data = bytes(store.read(name)[0])
    return data, parse_manifest(data, store.address.of(name), is_folder=files.is_folder)


def manifest_or_advice(store: Store) -> tuple[bytes, dict[str, Any]]:
    """Return the result of `fetch_manifest`. Raises UserError: there is no set; names the usual mistake."""
    try:
        return fetch_manifest(store)
    except Vanished as error:
        raise UserError(
            f"{store.address.uri}: no token set there ({error}). Give the folder that holds manifest.json, "
            "or the .npy that has a .npy.json next to it",
            code="no-token-set",
        ) from None


def fetch_tokenizer(store: Store, manifest: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of the set's tokenizer by name; empty if it has none.

    Raises:
        UserError: they are damaged, or of another tokenizer than the manifest names.
    """
    folder = store.address.files.tokenizer.as_posix()
    with tempfile.TemporaryDirectory() as place:
        for name in (*TOKENIZER_FILES, TIKTOKEN_FILE, RANKS_FILE):
            with suppress(Vanished):
                (Path(place) / name).write_bytes(store.read(f"{folder}/{name}")[0])
        if not holds_tokenizer(Path(place)):
            return {}
        try:
            tokenizer = read_tokenizer(Path(place), manifest["tokenizer"]["name"])
        except UserError as error:
            message = str(error).replace(place, store.address.of(folder))
            raise UserError(message, code=error.code) from None
        expected = manifest["tokenizer"]["content_hash"]
        if tokenizer.content_hash != expected:
            raise UserError(
                f"{store.address.of(folder)} holds another tokenizer (content {tokenizer.content_hash[:12]}) "
                f"than the set was made with (content {expected[:12]}). Upload the set again",
                code="tokenizer-differs",
            )
        return {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}
