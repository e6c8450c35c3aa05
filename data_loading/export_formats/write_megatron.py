"""Megatron-LM and Megatron-core: STEM_text_document.bin with the tokens, .idx with where documents lie.

Source: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py (writer and reader) and
tools/preprocess_data.py (names, one sequence a document, with --append-eod the end-of-text id behind
each). The .idx: b"MMIDIDX\\0\\0", uint64 version 1, uint8 code of the dtype, uint64 sequences, uint64
document indices (documents + 1), then int32 length of each sequence, int64 byte offset of each, int64
indices: the first sequence of each document and their number; multimodal sets then have an int8 for each
sequence. uint16 below 65,500 ids, else int32.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.dataset.splits import DOCUMENTS_FOR_A_BORDER
from data_loading.export_formats.contents import SLICE_TOKENS, ArrayLike, Contents, document_lengths
from data_loading.export_formats.export_files import ExportWriter, write_parts
from data_loading.export_formats.exporter import Format, NotThisFormat, Reading, count, mapped
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import LazyValues
from data_loading.tokens.token_set import TokenSet
from experiment_utils.errors import UserError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
CODES: dict[int, np.dtype] = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"), 1)
}
"""All that an index may name; 4 and 8 are written."""
_FAIRSEQ_HEADER_BYTES = HEADER.size - 8
"""fairseq/data/indexed_dataset.py, MMapIndexedDataset: the same without document indices and their number."""
IDS_FOR_UINT16 = 65_500
LONGEST_SEQUENCE = 2**31 - 1
"""Lengths are int32: a longer document is written as several sequences of one document."""


class Megatron(Format):
    name = "megatron"
    has_val = False

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= 2**31:
            return None
        return f"Megatron reads int32, and tokenizer {tokenizer.name} has {tokenizer.vocab_size:,} ids"

    def notes(self, contents: Contents) -> Iterator[str]:
        token_set = contents.splits["all"].tokens
        documents = 1 if token_set.documents is None else len(token_set.documents)
        if documents < DOCUMENTS_FOR_A_BORDER and not contents.val_apart:
            count = "1 document" if documents == 1 else f"{documents} documents"
            yield (
                f"Megatron's --split divides whole documents, and this set has {count}: tell them apart with "
                "--document-separator, or hold out a text of its own with --val"
            )

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        split, name = contents.splits["all"], f"{contents.stem}_text_document"
        code = 8 if contents.tokenizer["vocab_size"] < IDS_FOR_UINT16 else 4
        write_parts(writer, [(f"{name}.bin", len(split))], self.stream(split), CODES[code])
        sequences = sum(len(lengths) for lengths, _ in _sequences(split.tokens))
        documents = sum(len(counts) for _, counts in _sequences(split.tokens))
        with writer.file(f"{name}.idx") as file:
            file.write(HEADER.pack(MAGIC, 1, code, sequences, documents + 1))
            for lengths, _ in _sequences(split.tokens):
                file.write(lengths.astype("<i4"))
            offset = 0
            for lengths, _ in _sequences(split.tokens):
                ends = np.cumsum(lengths) + offset
                file.write(((ends - lengths) * CODES[code].itemsize).astype("<i8"))
                offset = int(ends[-1])
            file.write(np.zeros(1, "<i8"))
            last = 0
            for _, counts in _sequences(split.tokens):
                indices = np.cumsum(counts) + last
                file.write(indices.astype("<i8"))
                last = int(indices[-1])

    def read(self, folder: Path) -> Reading:
        found = sorted(folder.glob("*.idx"))
        if len(found) != 1:
            raise NotThisFormat(f"expected one .idx, there are {len(found)}")
        return _read(found[0])


def _sequences(token_set: TokenSet) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(length of each sequence, sequences of each document), int64, in slices."""
    for lengths in document_lengths(token_set):
        counts = -(-lengths // LONGEST_SEQUENCE)
        sequences = np.full(int(counts.sum()), LONGEST_SEQUENCE, np.int64)
        sequences[np.cumsum(counts) - 1] = lengths - (counts - 1) * LONGEST_SEQUENCE
        yield sequences, counts


@dataclass(frozen=True)
class Index:
    """What an .idx says, mapped. dtype: of the tokens.

    lengths: tokens of each sequence, int32. pointers: byte of each in the .bin, int64. borders: first
    sequence of each document, int64, then their number.
    """

    path: Path
    dtype: np.dtype
    lengths: np.ndarray
    pointers: np.ndarray
    borders: np.ndarray

    @property
    def bin_path(self) -> Path:
        return self.path.with_suffix(".bin")


def read_index(path: Path) -> Index:
    """An index that fits itself and its .bin. Raises NotThisFormat, UserError (fairseq's), OSError."""
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
        size = file.seek(0, os.SEEK_END)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise NotThisFormat(f"{path.name} does not begin as an index of Megatron")
    _, version, code, sequences, indices = HEADER.unpack(header)
    if version != 1 or code not in CODES:
        raise NotThisFormat(
            f"{path.name} is of version {version} with dtype code {code}; known are 1 with 1 to {max(CODES)}"
        )
    if CODES[code].kind == "f":
        raise NotThisFormat(f"{path.name} has dtype code {code}, {CODES[code].name}, which are no ids")
    expected = HEADER.size + sequences * 12 + indices * 8
    if size == _FAIRSEQ_HEADER_BYTES + sequences * 12:
        raise UserError(
            f"{path} is an index of fairseq, which has no document indices. Its {path.stem}.bin is read "
            f"as ids without a header: move the .idx elsewhere, and say dataset.dtype={CODES[code].name}",
            code="fairseq-index",
        )
    if size not in (expected, expected + sequences):
        raise NotThisFormat(
            f"{path.name} has {size:,} bytes, its {sequences:,} sequences and {indices:,} indices make "
            f"{expected:,}"
        )
    index = Index(
        path,
        CODES[code],
        _mapped(path, "<i4", HEADER.size, sequences),
        _mapped(path, "<i8", HEADER.size + sequences * 4, sequences),
        _mapped(path, "<i8", HEADER.size + sequences * 12, indices),
    )
    _check(index)
    return index


def _mapped(path: Path, dtype: str, offset_bytes: int, length: int) -> np.ndarray:
    if length == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", offset_bytes, (length,))


def _read(path: Path) -> Reading:
    index = read_index(path)
    return Reading({"all": mapped(index.bin_path, index.dtype)}, DocumentStarts(index))


def _check(index: Index) -> None:
    """The sequences lie one behind the other and fill the .bin; documents are runs of them."""
    name, total = index.path.name, 0
    tokens = count(index.bin_path, index.dtype)
    for at in range(0, len(index.lengths), SLICE_TOKENS):
        part = np.asarray(index.lengths[at : at + SLICE_TOKENS]).astype(np.int64)
        ends = np.cumsum(part) + total
        pointers = index.pointers[at : at + SLICE_TOKENS]
        if (part < 0).any() or (pointers != (ends - part) * index.dtype.itemsize).any():
            raise NotThisFormat(f"{name}: its sequences do not lie one behind the other")
        total = int(ends[-1])
    if total != tokens:
        raise NotThisFormat(f"{name} tells of {total:,} tokens, the .bin has {tokens:,}")
    previous = 0
    for at in range(0, len(index.borders), SLICE_TOKENS):
        steps = np.diff(index.borders[at : at + SLICE_TOKENS], prepend=previous)
        if (steps < 0).any() or (at == 0 and index.borders[0] != 0):
            raise NotThisFormat(f"{name}: its document indices do not ascend from 0")
        previous = int(index.borders[min(at + SLICE_TOKENS, len(index.borders)) - 1])
    if previous != len(index.lengths):
        raise NotThisFormat(
            f"{name}: its last document index is {previous:,} of {len(index.lengths):,} sequences"
        )


class DocumentStarts(LazyValues):
    """Document starts in tokens, uint64, from the index. One without sequences starts where the next does."""

    dtype = np.dtype("<u8")

    def __init__(self, index: Index) -> None:
        self._index = index

    def __len__(self) -> int:
        return max(len(self._index.borders) - 1, 0)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self._starts(self._index.borders[start:stop])

    def take(self, places: np.ndarray) -> np.ndarray:
        return self._starts(self._index.borders[places])

    def _starts(self, sequences: np.ndarray) -> np.ndarray:
        """The first token of each of these sequences; behind the last, of none: the end of all."""
        index, last = self._index, len(self._index.lengths) - 1
        found = np.full(len(sequences), 0, self.dtype)
        if last >= 0:
            read = np.minimum(sequences, last)
            found[:] = index.pointers[read] // index.dtype.itemsize
            found[sequences > last] += int(index.lengths[last])
        return found


_: type[ArrayLike] = DocumentStarts
FORMAT = Megatron()
