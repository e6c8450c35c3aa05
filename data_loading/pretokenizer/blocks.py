"""From documents to blocks: enough text to encode at once, cut where no id changes."""

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
"""Bytes without a safe cut that are still encoded whole; more is an error, never a silent cut."""


MOST_CHUNKS = 1 << 13
"""In a block: very short documents would weigh more than their text."""

_FEW_DOCUMENTS = 64
"""In a block: up to so many are copied one by one, which is faster than through a mask."""


@dataclass(frozen=True)
class Place:
    """A moment between two blocks: `skip` bytes into the chunk that `mark` begins."""

    mark: Mark | None
    skip: int


@dataclass(frozen=True)
class Block:
    """Text for one call of an engine, parts of documents in their order.

    chunks: each is a whole document, or begins and ends at a safe cut. after: where the text behind
    this block begins; None where nobody is to go on there. begins_document: whether the first chunk does.
    """

    index: int
    chunks: list[Chunk]
    after: Place | None = None
    begins_document: bool = False


@dataclass(frozen=True)
class EncodedBlock:
    """ids: `(n,)` in the dtype of the token file, end-of-text ids included.

    document_ends: int64, positions in `ids` just after a document's last id. after: as in Block.
    """

    index: int
    ids: np.ndarray
    document_ends: np.ndarray
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
        """The blocks that are full. after: the mark and `skip` of the place behind the chunk."""
        full: tuple[Block, ...] = ()
        if self.size and self.size + len(chunk.data) > self.block_bytes:
            full = (self.flush(),)
        self.chunks.append(chunk)
        self.size += len(chunk.data)
        self.after = after
        if self.size >= self.block_bytes or len(self.chunks) >= MOST_CHUNKS:
            full = (*full, self.flush())
        return full

    def flush(self) -> Block:
        """All chunks, of which there must be some."""
        block = Block(self.index, self.chunks, Place(*self.after), self.begins_document)
        self.begins_document = self.chunks[-1].ends_document
        self.index, self.chunks, self.size = self.index + 1, [], 0
        return block


class _Part(NamedTuple):
    """Of a chunk: all but its text."""

    mark: Mark | None
    offset: int
    size: int


@dataclass
class _Rest:
    """Text of the chunks not packed yet, and which chunk each of its bytes is from."""

    data: bytearray = field(default_factory=bytearray)
    parts: deque[_Part] = field(default_factory=deque)
    used: int = 0

    @property
    def start(self) -> int:
        """Where its first byte is in the source; within the chunk, if that is not what the source holds."""
        return self.parts[0].offset + self.used

    def add(self, chunk: Chunk) -> None:
        if not self.data:
            self.parts.clear()
            self.used = 0
        self.data += chunk.data
        self.parts.append(_Part(chunk.mark, chunk.offset, len(chunk.data)))

    def head(self, count: int) -> bytes:
        """The first bytes, copied once."""
        with memoryview(self.data) as view:
            return bytes(view[:count])

    def drop(self, count: int) -> tuple[Mark | None, int]:
        """Remove the first bytes. Returns the mark and `skip` of the place where the others begin."""
        del self.data[:count]
        self.used += count
        # The last part stays, so that a place just behind it can be told as well.
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
    """Pack chunks into blocks of about `block_bytes`; documents without text are left out.

    Memory: one block and one chunk, or the longest run without a safe cut. skip: bytes at the
    start that an earlier attempt has packed. errors: what is done with bytes that are not UTF-8.
    begins_document: whether a document begins behind them.

    Raises:
        UserError: more than `run_limit_bytes` without a safe cut, with the byte at which they start; or
            they are no text, with the first such byte.
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
    """A character may still be under way at its end. Raises UserError."""
    try:
        codecs.utf_8_decode(rest.data, "strict", False)
    except UnicodeDecodeError as error:
        raise undecodable(source, "utf-8", rest.start + error.start, rest.data[error.start]) from None


def run_too_long(source: str, start: int, rule: CutRule, limit: int) -> UserError:
    """What a user is told about a run of more than `limit` bytes without a safe cut, from byte `start` on."""
    size = f"{limit / 2**20:g} MB"
    if rule.exists:
        return UserError(
            f"{source}: from byte {start:,} on there is no place to cut at for more than {size}, and a cut "
            f"may change token ids anywhere but {rule.where}. Is this a text? Put such places, or a "
            "document separator (--document-separator), into it, or allow longer runs, which are held in "
            "memory (--run-limit 64MB)",
            code="run-too-long",
        )
    return UserError(
        f"{source}: the document that holds byte {start:,} is longer than {size}, and this tokenizer has "
        f"to see a document whole ({rule.why_none}). Divide the text into documents at a line of its own "
        "between them (--document-separator LINE; '' for an empty line), or allow longer ones, which take "
        "some 200 bytes of memory a byte (--run-limit 64MB)",
        code="document-too-long",
    )


@dataclass(frozen=True)
class BlockEncoder:
    """Blocks to ids; the same in this process and in a worker.

    eot_id: appended to each document; None: nothing is. vocab_size: an id at or above it is a fault
    of the engine. errors: what to do with bytes that are not UTF-8. bos_id: put before each document.
    """

    engine: Engine
    eot_id: int | None
    vocab_size: int
    errors: str
    bos_id: int | None = None

    @property
    def dtype(self) -> np.dtype:
        return token_dtype(self.vocab_size)

    def encode(self, block: Block) -> EncodedBlock:
        """Raises UserError where bytes are not UTF-8, with the file and the byte."""
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
        ends = np.array([chunk.ends_document for chunk in block.chunks])
        if self.bos_id is not None:
            return self._between(block, found, lengths, ends)
        if self.eot_id is None:
            ids = found.astype(self.dtype)
            return EncodedBlock(block.index, ids, np.cumsum(lengths)[ends], block.after)
        positions = np.cumsum(lengths + ends)[ends]
        ids = np.empty(len(found) + len(positions), self.dtype)
        if len(positions) <= _FEW_DOCUMENTS:
            starts = [0, *positions.tolist()]
            for number, start in enumerate(starts):
                stop = starts[number + 1] - 1 if number < len(positions) else len(ids)
                ids[start:stop] = found[start - number : stop - number]
        else:
            is_text = np.ones(len(ids), bool)
            is_text[positions - 1] = False
            ids[is_text] = found
        ids[positions - 1] = self.eot_id
        return EncodedBlock(block.index, ids, positions, block.after)

    def _between(
        self, block: Block, found: np.ndarray, lengths: np.ndarray, ends: np.ndarray
    ) -> EncodedBlock:
        """The ids of documents with one before and, where there is an end of text, one after each."""
        begins = np.append(block.begins_document, ends[:-1])
        after = np.cumsum(lengths + begins + (ends if self.eot_id is not None else 0))
        firsts, positions = np.append(0, after[:-1])[begins], after[ends]
        is_text = np.ones(int(after[-1]), bool)
        is_text[firsts] = False
        if self.eot_id is not None:
            is_text[positions - 1] = False
        ids = np.empty(len(is_text), self.dtype)
        ids[is_text] = found
        ids[firsts] = self.bos_id
        if self.eot_id is not None:
            ids[positions - 1] = self.eot_id
        return EncodedBlock(block.index, ids, positions, block.after)


def token_dtype(vocab_size: int) -> np.dtype:
    """uint16 up to 65,536 ids, else uint32; little endian."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")
