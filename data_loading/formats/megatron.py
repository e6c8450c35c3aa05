"""Megatron-LM and Megatron-core: STEM_text_document.bin with the tokens, .idx with where documents lie.

Source: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py (writer and reader) and
tools/preprocess_data.py (names, one sequence a document, with --append-eod the end-of-text id behind
each). The .idx: b"MMIDIDX\\0\\0", uint64 version 1, uint8 code of the dtype, uint64 sequences, uint64
document indices (documents + 1), then int32 length of each sequence, int64 byte offset of each, int64
indices: the first sequence of each document and their number. uint16 below 65,500 ids, else int32.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_loading.formats.contents import SLICE_TOKENS, ArrayLike, Contents, document_lengths
from data_loading.formats.files import ExportWriter, write_parts
from data_loading.formats.format import Format, NotThisFormat, Reading, mapped
from data_loading.splits import DOCUMENTS_FOR_A_BORDER
from data_loading.token_set import TokenSet
from data_loading.tokenizer import Tokenizer

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
CODES: dict[int, np.dtype] = {4: np.dtype("<i4"), 8: np.dtype("<u2")}
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


def _read(path: Path) -> Reading:
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
        size = file.seek(0, os.SEEK_END)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise NotThisFormat(f"{path.name} does not begin as an index of Megatron")
    _, version, code, sequences, indices = HEADER.unpack(header)
    if version != 1 or code not in CODES:
        raise NotThisFormat(
            f"{path.name} is of version {version} with dtype code {code}; known are 1 with 4 or 8"
        )
    expected = HEADER.size + sequences * 12 + indices * 8
    if size != expected:
        raise NotThisFormat(
            f"{path.name} has {size:,} bytes, its {sequences:,} sequences and {indices:,} indices make "
            f"{expected:,}"
        )
    lengths = np.memmap(path, "<i4", "r", HEADER.size, (sequences,))
    pointers = np.memmap(path, "<i8", "r", HEADER.size + sequences * 4, (sequences,))
    borders = np.memmap(path, "<i8", "r", HEADER.size + sequences * 12, (indices,))
    tokens = mapped(path.with_suffix(".bin"), CODES[code])
    _check(path, lengths, pointers, borders, tokens)
    return Reading({"all": tokens}, _Starts(pointers, borders, CODES[code].itemsize))


def _check(
    path: Path, lengths: np.ndarray, pointers: np.ndarray, borders: np.ndarray, tokens: np.ndarray
) -> None:
    """The sequences lie one behind the other and fill the .bin; documents are runs of them."""
    total = 0
    for at in range(0, len(lengths), SLICE_TOKENS):
        part = np.asarray(lengths[at : at + SLICE_TOKENS]).astype(np.int64)
        ends = np.cumsum(part) + total
        if (part <= 0).any() or (pointers[at : at + SLICE_TOKENS] != (ends - part) * tokens.itemsize).any():
            raise NotThisFormat(f"{path.name}: its sequences do not lie one behind the other")
        total = int(ends[-1])
    if total != len(tokens):
        raise NotThisFormat(f"{path.name} tells of {total:,} tokens, the .bin has {len(tokens):,}")
    previous = -1
    for at in range(0, len(borders), SLICE_TOKENS):
        steps = np.diff(borders[at : at + SLICE_TOKENS], prepend=previous)
        if (steps <= 0).any() or (at == 0 and borders[0] != 0):
            raise NotThisFormat(f"{path.name}: its document indices do not ascend from 0")
        previous = int(borders[min(at + SLICE_TOKENS, len(borders)) - 1])
    if previous != len(lengths):
        raise NotThisFormat(
            f"{path.name}: its last document index is {previous:,} of {len(lengths):,} sequences"
        )


class _Starts:
    """Document starts in tokens, uint64, from the index."""

    dtype = np.dtype("<u8")

    def __init__(self, pointers: np.ndarray, borders: np.ndarray, itemsize: int) -> None:
        self._pointers, self._borders, self._itemsize = pointers, borders, itemsize

    def __len__(self) -> int:
        return len(self._borders) - 1

    def __getitem__(self, part: slice) -> np.ndarray:
        return (self._pointers[self._borders[:-1][part]] // self._itemsize).astype(self.dtype)


_: type[ArrayLike] = _Starts
FORMAT = Megatron()
