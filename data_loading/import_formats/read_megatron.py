"""Megatron-LM and Megatron-core: STEM.bin with the tokens, STEM.idx with the borders of documents.

Source: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py (writer and reader). The
.idx: b"MMIDIDX\\0\\0", uint64 version 1, uint8 code of the dtype, uint64 sequences, uint64 document indices
(documents + 1), then int32 length of each sequence, int64 byte offset of each, int64 indices: the first
sequence of each document and their number; multimodal sets then have an int8 for each sequence.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, count_values
from data_loading.tokens.lazy_array import LazyValues
from experiment_utils.errors import UserError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
CODES: dict[int, np.dtype] = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"), 1)
}
"""Dtypes of tokens by their code in the index."""
_LEGACY = b"TNTIDX\x00\x00"
_FAIRSEQ_HEADER_BYTES = HEADER.size - 8
"""fairseq/data/indexed_dataset.py, MMapIndexedDataset: no document indices, and not their number."""
_CHECKED_VALUES = 1 << 20


class Megatron(Kind):
    """A stem, its .bin or .idx, or a folder with one such pair."""

    name = "Megatron"

    def sign(self, path: Path) -> str | None:
        for index in _indices(path):
            found = begins(index, len(MAGIC))
            if found == MAGIC or found.startswith(_LEGACY):
                return f"{index.name} begins with {found!r}"
        return None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        indices = _indices(path)
        if len(indices) > 1:
            stems = ", ".join(str(index.with_suffix("")) for index in indices)
            raise UserError(
                f"{path} holds {len(indices)} sets of Megatron: {stems}. Name the one to train on and "
                "the one to hold out: dataset.path=STEM dataset.val_path=STEM",
                code="megatron-several-sets",
            )
        if begins(indices[0], len(_LEGACY)) == _LEGACY:
            raise UserError(
                f"{indices[0]} is an index of Megatron's older kinds (lazy, cached). Convert it: "
                "tools/preprocess_data.py --dataset-impl mmap",
                code="megatron-old-index",
            )
        try:
            index = _read_index(indices[0])
        except ValueError as error:
            raise self.damaged(path, str(error)) from None
        except FileNotFoundError as error:
            raise self.damaged(path, f"{error.filename} is missing") from None
        files = (index.path.with_suffix(".bin"), index.path)
        return {"all": SplitLayout(Runs.of_files(index.dtype, files[:1]), _DocumentStarts(index), files)}


def _indices(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.idx"))
    index = (
        path.with_suffix(".idx") if path.suffix in (".bin", ".idx") else path.with_name(f"{path.name}.idx")
    )
    return [index] if index.is_file() else []


@dataclass(frozen=True)
class _Index:
    """Arrays of an .idx, memory-mapped."""

    path: Path
    dtype: np.dtype
    """Dtype of the tokens."""
    lengths: np.ndarray
    """`(sequences,)` int32: tokens of each."""
    pointers: np.ndarray
    """`(sequences,)` int64: byte of each in the .bin."""
    borders: np.ndarray
    """`(documents + 1,)` int64: first sequence of each, and the number of sequences."""


def _read_index(path: Path) -> _Index:
    """Return an index that fits itself and its .bin. Raises ValueError, UserError (fairseq's), OSError."""
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
        size = file.seek(0, os.SEEK_END)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise ValueError(f"{path.name} does not begin as an index of Megatron")
    _, version, code, sequences, indices = HEADER.unpack(header)
    if version != 1 or code not in CODES:
        raise ValueError(
            f"{path.name} has version {version} and dtype code {code}; expected version 1 and a code of 1 to "
            f"{max(CODES)}"
        )
    if CODES[code].kind == "f":
        raise ValueError(f"{path.name} has dtype code {code}, {CODES[code].name}; expected integers")
    expected = HEADER.size + sequences * 12 + indices * 8
    if size == _FAIRSEQ_HEADER_BYTES + sequences * 12:
        raise UserError(
            f"{path} is an index of fairseq, which has no document indices. Its {path.stem}.bin is read "
            f"as ids without a header: move the .idx elsewhere, and set dataset.dtype={CODES[code].name}",
            code="fairseq-index",
        )
    if size not in (expected, expected + sequences):
        raise ValueError(
            f"{path.name} has {size:,} bytes, its {sequences:,} sequences and {indices:,} indices make "
            f"{expected:,}"
        )
    at = HEADER.size
    index = _Index(
        path,
        CODES[code],
        _mapped(path, "<i4", at, sequences),
        _mapped(path, "<i8", at + sequences * 4, sequences),
        _mapped(path, "<i8", at + sequences * 12, indices),
    )
    _check(index)
    return index


def _mapped(path: Path, dtype: str, offset_bytes: int, length: int) -> np.ndarray:
    return np.memmap(path, dtype, "r", offset_bytes, (length,)) if length else np.empty(0, dtype)


def _check(index: _Index) -> None:
    """Check that sequences follow each other and fill the .bin, and that documents are runs of them.

    Raises:
        ValueError: They do not.
    """
    name, total = index.path.name, 0
    tokens = count_values(index.path.with_suffix(".bin"), index.dtype)
    for at in range(0, len(index.lengths), _CHECKED_VALUES):
        part = np.asarray(index.lengths[at : at + _CHECKED_VALUES]).astype(np.int64)
        ends = np.cumsum(part) + total
        pointers = index.pointers[at : at + _CHECKED_VALUES]
        if (part < 0).any() or (pointers != (ends - part) * index.dtype.itemsize).any():
            raise ValueError(f"{name}: its sequences do not follow each other without gaps")
        total = int(ends[-1])
    if total != tokens:
        raise ValueError(f"{name} has sequences of {total:,} tokens, the .bin has {tokens:,}")
    previous = 0
    for at in range(0, len(index.borders), _CHECKED_VALUES):
        part = index.borders[at : at + _CHECKED_VALUES]
        if (np.diff(part, prepend=previous) < 0).any() or (at == 0 and part[0] != 0):
            raise ValueError(f"{name}: its document indices do not ascend from 0")
        previous = int(part[-1])
    if previous != len(index.lengths):
        raise ValueError(
            f"{name}: its last document index is {previous:,} of {len(index.lengths):,} sequences"
        )


class _DocumentStarts(LazyValues):
    """Document starts in tokens, uint64. A document without sequences starts at the next document's start."""

    dtype = np.dtype("<u8")

    def __init__(self, index: _Index) -> None:
        self._index = index

    def __len__(self) -> int:
        return max(len(self._index.borders) - 1, 0)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self._starts(self._index.borders[start:stop])

    def take(self, places: np.ndarray) -> np.ndarray:
        return self._starts(self._index.borders[places])

    def _starts(self, sequences: np.ndarray) -> np.ndarray:
        """Return the first token of each sequence; the end of all tokens if it is behind the last one."""
        index, last = self._index, len(self._index.lengths) - 1
        found = np.zeros(len(sequences), self.dtype)
        if last >= 0:
            found[:] = index.pointers[np.minimum(sequences, last)] // index.dtype.itemsize
            found[sequences > last] += int(index.lengths[last])
        return found
