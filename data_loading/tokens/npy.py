"""Plain 1-D `.npy` files (format version 1.0, little endian): checked when read, grown when written."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from experiment_utils.errors import UserError
from memory.files.file_kinds import HEAD_BYTES, KINDS_LIKE_IDS, kind_of

HEADER_BYTES = 128
"""Size of the header that NumPy writes for a 1-D array of any length."""


def header(dtype: np.dtype, length: int) -> bytes:
    """Return the first 128 bytes of the file, as `np.save` writes them."""
    buffer = io.BytesIO()
    facts = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    npy_format.write_array_header_1_0(buffer, facts)
    text = buffer.getvalue()
    assert len(text) == HEADER_BYTES
    return text


class NpyWriter:
    """Append to a 1-D array on disk whose length is known at the end.

    Args:
        file: Open for reading and writing.
        dtype: Of the values.
        length: Values to keep; the file is cut behind them.
    """

    def __init__(self, file: IO[bytes], dtype: np.dtype, length: int = 0) -> None:
        self._file, self._dtype, self.length = file, np.dtype(dtype), length
        file.seek(0)
        file.write(b"\0" * HEADER_BYTES)
        file.truncate(HEADER_BYTES + length * self._dtype.itemsize)
        file.seek(0, io.SEEK_END)

    def append(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._dtype)
        self._file.write(values.data.cast("B") if len(values) else b"")
        self.length += len(values)

    def finish(self) -> None:
        """Write the header with the length; the caller flushes and syncs."""
        self._file.seek(0)
        self._file.write(header(self._dtype, self.length))


def is_npy(path: Path) -> bool:
    """Whether a file begins as an .npy, or as another kind of file that `open_npy` names."""
    try:
        with open(path, "rb") as file:
            begins = file.read(HEAD_BYTES)
    except OSError:
        return True
    kind = kind_of(begins)
    return kind is not None and kind.id not in KINDS_LIKE_IDS


def open_npy(path: Path, *, may_be_empty: bool = False) -> np.ndarray:
    """Memory-map a 1-D array of integers, read-only.

    Raises:
        UserError: It does not exist, is no `.npy`, is truncated or pickled, or has another dtype, byte order
            or number of dimensions.
    """
    try:
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            raise UserError(
                f"{path} is a pipe, which cannot be mapped. Write it into a file first",
                code="npy-is-pipe",
            )
        with open(path, "rb") as file:
            shape, dtype = _read_header(path, file)
            start, size = file.tell(), file.seek(0, io.SEEK_END)
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such token file. Copy it back, or tokenize its text again",
            code="tokens-file-missing",
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", code="file-unreadable") from error
    _check_kind(path, shape, dtype)
    expected = start + shape[0] * dtype.itemsize
    if size != expected:
        word = "truncated" if size < expected else "longer than its header says"
        raise UserError(
            f"{path} is {word}: {shape[0]:,} tokens of {dtype} make {expected:,} bytes, the file has "
            f"{size:,}. Copy or tokenize it again",
            code="npy-size",
        )
    if shape[0] == 0:
        if may_be_empty:
            return np.empty(0, dtype)  # an empty file cannot be mapped
        raise UserError(f"{path} holds no tokens", code="no-tokens")
    return np.memmap(path, dtype, mode="r", offset=start, shape=shape)


def _read_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    try:
        version = npy_format.read_magic(file)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, dtype = read(file)
    except OSError:
        raise
    except Exception as error:  # NumPy reads the header as Python; a damaged one may raise anything
        file.seek(0)
        raise UserError(
            f"{path} is no whole .npy file{_what_it_is(path, file.read(HEAD_BYTES))} ({error})",
            code="npy-damaged",
        ) from None
    return shape, dtype


def _what_it_is(path: Path, begins: bytes) -> str:
    """Describe another kind of file by its first bytes, and what to do with it."""
    if not begins:
        return ", it is empty. Copy or tokenize it again"
    if begins.startswith(b"\x93NUMPY"):
        return ", its header is damaged or cut short. Copy or tokenize it again"
    if (kind := kind_of(begins)) is not None and kind.id not in KINDS_LIKE_IDS:
        return f": it is {kind.name}. {kind.advice_for(path)}"
    return (
        f": it begins with {begins[:8]!r}. A raw token file has no header: wrap it with "
        "np.save(OUT, np.fromfile(FILE, dtype))"
    )


def _check_kind(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    little = f"np.save(OUT, np.load('{path}').astype('{dtype.newbyteorder('<').str}'))"
    problems = [
        (dtype.hasobject, "npy-pickled", "holds pickled Python objects, which are never loaded", ""),
        (dtype.names, "npy-records", f"holds records with fields {', '.join(dtype.names or ())}", ""),
        (dtype.kind not in "iu", "npy-dtype", f"holds {dtype}", ""),
        (dtype.byteorder == ">", "npy-big-endian", f"is big-endian ({dtype.str})", f". Convert it: {little}"),
        (
            len(shape) != 1,
            "npy-dimensions",
            f"has {len(shape)} dimensions, shape {shape}",
            ". Flatten it and save it again",
        ),
    ]
    for is_wrong, code, problem, advice in problems:
        if is_wrong:
            raise UserError(
                f"{path} {problem}; expected a 1-D array of little-endian integers (uint16, uint32, int32, "
                f"int64){advice}",
                code=code,
            )
