"""Blocks of text for one call of an engine, cut from documents where no id changes, and their ids."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from data_loading.pretokenizer.engines.base import Engine
from data_loading.text_io.chunks import Chunk, Mark, not_utf8, undecodable
from data_loading.tokenizers.cutting.cuts import CutRule, first_cut, last_cut
from experiment_utils.errors import UserError

RUN_LIMIT_BYTES = 16 << 20
"""Longest text without a safe cut that is encoded whole. Longer text is an error."""

MOST_CHUNKS = 1 << 13
"""Bound of a block of very short documents, which need more memory than their text."""


@dataclass(frozen=True)
class Place:
    """A place in the source between two blocks: `skip` bytes into the chunk that `mark` begins."""

    mark: Mark | None
    skip: int


@dataclass(frozen=True)
class Block:
    """Text for one call of an engine: parts of documents in their order."""

    index: int
    chunks: list[Chunk]
    """Each is a whole document, or begins and ends at a safe cut."""
    after: Place | None = None
    """Beginning of the text behind this block; None: no job resumes there."""
    begins_document: bool = False
    """Whether the first chunk begins a document."""


@dataclass(frozen=True)
class EncodedBlock:
    """Ids of a block, end-of-text ids included."""

    index: int
    ids: np.ndarray
    """`(n,)`, in the dtype of the token file."""
    document_ends: np.ndarray
    """Positions in `ids` behind the last id of each document that ends here, int64."""
    after: Place | None = None


@dataclass
class _Packer:
    """Collects chunks until they fill a block."""

    block_bytes: int
    chunks: list[Chunk] = field(default_factory=list)
    size: int = 0
    index: int = 0
    after: tuple[Mark | None, int] = (None, 0)
    begins_document: bool = True

    def add(self, chunk: Chunk, *after: Any) -> Sequence[Block]:
        """Add a chunk. Returns the blocks that are full. after: the arguments of the Place behind it."""
        full = [self.flush()] if self.size and self.size + len(chunk.data) > self.block_bytes else []
        self.chunks.append(chunk)
        self.size += len(chunk.data)
        self.after = after
        if self.size >= self.block_bytes or len(self.chunks) >= MOST_CHUNKS:
            full.append(self.flush())
        return full

    def flush(self) -> Block:
        """Return a block of all chunks. There must be at least one."""
        block = Block(self.index, self.chunks, Place(*self.after), self.begins_document)
        self.begins_document = self.chunks[-1].ends_document
        self.index, self.chunks, self.size = self.index + 1, [], 0
        return block


class _Part(NamedTuple):
    """A chunk without its text."""

    mark: Mark | None
    offset: int
    size: int


@dataclass
class _Rest:
    """Text of the chunks that are not packed yet, and the chunk that each byte is from."""

    data: bytearray = field(default_factory=bytearray)
    parts: deque[_Part] = field(default_factory=deque)
    used: int = 0

    @property
    def start(self) -> int:
        """Offset of the first byte in the source; in the chunk, if the source holds no such bytes."""
        return self.parts[0].offset + self.used

    def add(self, chunk: Chunk) -> None:
        if not self.data:
            self.parts.clear()
            self.used = 0
        self.data += chunk.data
        self.parts.append(_Part(chunk.mark, chunk.offset, len(chunk.data)))

    def head(self, count: int) -> bytes:
        """Copy the first bytes."""
        with memoryview(self.data) as view:
            return bytes(view[:count])

    def drop(self, count: int) -> tuple[Mark | None, int]:
        """Remove the first bytes. Returns the mark and `skip` of the place where the others begin."""
        del self.data[:count]
        self.used += count
        # The last part stays for the place just behind it.
        while len(self.parts) > 1 and self.used >= self.parts[0].size:
            self.used -= self.parts.popleft().size
        return self.parts[0].mark, self.used


def make_blocks(
    chunks: Iterable[Chunk],
    rule: CutRule,
    block_bytes: int,
    run_limit_bytes: int = RUN_LIMIT_BYTES,
    skip: int = 0,
    errors: str = "strict",
    begins_document: bool = True,
) -> Iterator[Block]:
    """Pack chunks into blocks, without documents that have no text.

    Memory: one block and one chunk, or the longest text without a safe cut.

    Args:
        chunks: Text of the source.
        rule: Safe cuts of the tokenizer.
        block_bytes: Size of a block, about.
        run_limit_bytes: Longest text without a safe cut.
        skip: Bytes at the start that an earlier attempt has packed.
        errors: Treatment of bytes that are not UTF-8.
        begins_document: Whether a document begins behind `skip`.

    Raises:
        UserError: More than `run_limit_bytes` have no safe cut, or are not UTF-8. The message names the byte.
    """
    packer = _Packer(block_bytes, begins_document=begins_document)
    rest = _Rest()
    for chunk in chunks:
        if chunk.ends_document and not (rest.data or skip) and len(chunk.data) <= block_bytes:
            if chunk.data:  # a whole document, or the end of one: as it is
                yield from packer.add(chunk, chunk.mark, len(chunk.data))
            continue
        rest.add(chunk)
        if skip:
            passed_over = min(skip, len(rest.data))
            rest.drop(passed_over)
            skip -= passed_over
        while len(rest.data) >= block_bytes:
            cut = _next_cut(rest.data, rule, block_bytes)
            if cut is None or cut > run_limit_bytes:
                break
            packed = Chunk(rest.head(cut), chunk.source, rest.start, False)
            yield from packer.add(packed, *rest.drop(cut + rule.drop_space))
        if len(rest.data) > run_limit_bytes:
            if errors == "strict":
                _check_utf8(rest, chunk.source)
            raise run_too_long(chunk.source, rest.start, rule, run_limit_bytes)
        if chunk.ends_document and rest.data:
            packed = Chunk(bytes(rest.data), chunk.source, rest.start, True)
            yield from packer.add(packed, *rest.drop(len(rest.data)))
    if rest.data:  # what is read ends inside a document, at a safe cut
        packed = Chunk(bytes(rest.data), chunk.source, rest.start, False)
        yield from packer.add(packed, *rest.drop(len(rest.data)))
    if packer.chunks:
        yield packer.flush()


def _next_cut(rest: bytearray, rule: CutRule, block_bytes: int) -> int | None:
    """The last safe cut within a block's length, else the first one after it."""
    if not rule.exists:
        return None
    cut = last_cut(rest, rule, 0, block_bytes)
    return cut if cut is not None else first_cut(rest, rule, block_bytes)


def _check_utf8(rest: _Rest, source: str) -> None:
    """Raise UserError unless the text is UTF-8. Its last character may be incomplete."""
    try:
        codecs.utf_8_decode(rest.data, "strict", False)
    except UnicodeDecodeError as error:
        raise undecodable(source, "utf-8", rest.start + error.start, rest.data[error.start]) from None


def run_too_long(source: str, start: int, rule: CutRule, limit: int) -> UserError:
    """The error for more than `limit` bytes without a safe cut from byte `start` on."""
    size = f"{limit / 2**20:g} MB"
    if rule.exists:
        return UserError(
            f"{source}: more than {size} from byte {start:,} on have no place where a cut changes no id "
            f"({rule.where}). Is this a text? Insert such places, or document separators "
            "(--document-separator LINE), or allow longer parts, which are held in memory (--run-limit 64MB)",
            code="run-too-long",
        )
    return UserError(
        f"{source}: the document with byte {start:,} is longer than {size}, and this tokenizer encodes a "
        f"document only whole ({rule.why_none}). Divide the text into documents with a separator line "
        "(--document-separator LINE; '' for an empty line), or allow longer documents, which need about 200 "
        "bytes of memory a byte (--run-limit 64MB)",
        code="document-too-long",
    )


@dataclass(frozen=True)
class BlockEncoder:
    """Encodes blocks; several threads may share it."""

    engine: Engine
    eot_id: int | None
    """Id behind each document; None: no id."""
    vocab_size: int
    """Ids are below it."""
    errors: str
    """Treatment of bytes that are not UTF-8."""
    bos_id: int | None = None
    """Id before each document; None: no id."""

    @property
    def dtype(self) -> np.dtype:
        return token_dtype(self.vocab_size)

    def encode(self, block: Block) -> EncodedBlock:
        """Encode a block. Raises UserError if it is not UTF-8, with the file and the byte."""
        texts = [chunk.data for chunk in block.chunks]
        if self.errors != "strict":
            texts = [text.decode("utf-8", self.errors).encode() for text in texts]
        try:
            found, lengths = self.engine.encode_batch(texts)
        except UnicodeDecodeError:
            raise not_utf8(block.chunks) from None
        if len(found) and int(found.max()) >= self.vocab_size:
            raise RuntimeError(
                f"{self.engine.name} gave id {found.max()} of a vocabulary of {self.vocab_size}"
            )
        has_eot, has_bos = self.eot_id is not None, self.bos_id is not None
        ends = np.array([chunk.ends_document for chunk in block.chunks])
        begins = np.append(block.begins_document, ends[:-1])
        stops = np.cumsum(lengths + has_eot * ends + has_bos * begins)
        ids, is_text = np.empty(int(stops[-1]), self.dtype), np.ones(int(stops[-1]), bool)
        firsts = np.append(0, stops[:-1])[begins & has_bos]
        lasts = stops[ends & has_eot] - 1
        is_text[firsts] = is_text[lasts] = False
        ids[is_text] = found.astype(self.dtype)
        if has_bos:
            ids[firsts] = self.bos_id
        if has_eot:
            ids[lasts] = self.eot_id
        return EncodedBlock(block.index, ids, stops[ends], block.after)


def token_dtype(vocab_size: int) -> np.dtype:
    """Dtype of a token file: uint16 up to 65,536 ids, else uint32; little endian."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")
