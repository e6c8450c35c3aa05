"""Common base of the formats: recognize a path, and find its tokens in its files."""

from __future__ import annotations

import abc
import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conf import AUTO
from data_loading.import_formats.byte_ranges import Runs
from data_loading.tokens.lazy_array import Values
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

DTYPES = ("uint16", "uint32", "int32", "int64")
"""Choices of dataset.dtype, for files that do not name their dtype."""
_NAMED_IN_FILES = ("uint8", "int8", "int16", "uint64")
_TEXT_SAMPLE_BYTES = 1 << 16
_NOT_IN_TEXT = bytes(sorted({*range(32)} - set(b"\t\n\f\r")))


class DamagedSet(UserError):
    """Files that their format's own reader would refuse."""

    code = "foreign-set-damaged"
    reason: str = ""
    """The fault, without path and advice."""


@dataclass(frozen=True)
class Asked:
    """Known facts about a set besides its files."""

    dtype: str = AUTO
    """`auto` or one of `DTYPES`."""
    vocab_size: int | None = None
    """Vocabulary of the run's tokenizer."""
    is_checked: bool = False
    """Whether the files are unchanged since they were last opened with success."""

    def __post_init__(self) -> None:
        if self.dtype not in (AUTO, *DTYPES, *_NAMED_IN_FILES):
            raise UserError(
                f"dtype {self.dtype!r}: choices are {', '.join((AUTO, *DTYPES))}", code="dtype-unknown"
            )


@dataclass(frozen=True)
class SplitLayout:
    """Tokens of one split."""

    tokens: Runs
    documents: Values | None
    """Document starts; None if the format does not keep documents apart."""
    files: tuple[Path, ...]
    """Files that decide tokens and documents, in order."""
    vocab_size: int | None = None
    tokenizer: str | None = None
    """Name of the tokenizer in the files."""
    dtype_reason: str | None = None
    """Why this dtype was chosen, if the files do not name it."""
    begin_ids: tuple[int, ...] = ()
    """Ids of which the format puts one before each document."""


class Kind(abc.ABC):
    """One format."""

    name: str
    """Name in messages."""

    @abc.abstractmethod
    def sign(self, path: Path) -> str | None:
        """Return what shows that a path is of this format, None if nothing does. Reads a few bytes."""

    @abc.abstractmethod
    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        """Return the layout of `all`, or of `train` and `val`. Reads indices and sizes, not all tokens.

        Raises:
            UserError: It is damaged, or cannot be read in place.
        """

    def damaged(self, path: Path, reason: str) -> DamagedSet:
        error = DamagedSet(
            f"{path} holds tokens as {self.name} has them, but {reason}. Copy it again, or make it again "
            f"with {self.name}"
        )
        error.reason = reason
        return error


def count_values(path: Path, dtype: np.dtype, header_bytes: int = 0) -> int:
    """Return the number of values behind a header. Raises ValueError: a part of one; OSError."""
    size = path.stat().st_size
    if size < header_bytes or (size - header_bytes) % dtype.itemsize:
        raise ValueError(f"{path.name} has {size:,} bytes, which is no whole number of {dtype.name}")
    return (size - header_bytes) // dtype.itemsize


def first_gap(numbers: list[str], first: int | None = None) -> str | None:
    """Return the first number that is missing up to the largest, padded as they are; None if none is.

    Args:
        numbers: Numbers in file names.
        first: The number that they must begin with.
    """
    found = {int(number) for number in numbers}
    if not found:
        return None
    start = min(found) if first is None else first
    gap = next((number for number in range(start, max(found)) if number not in found), None)
    return None if gap is None else f"{gap:0{len(numbers[0])}d}"


def read_object(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; None if the file is absent or holds something else.

    Raises:
        UserError: It cannot be read.
    """
    try:
        return atomic_files.read_object(path)
    except ValueError:
        return None


def begins(path: Path, count: int) -> bytes:
    """Return the first bytes of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""


def begins_as_text(path: Path) -> bool:
    """Whether the first bytes are UTF-8 without control characters. Token ids hardly ever are."""
    head = begins(path, _TEXT_SAMPLE_BYTES)
    if head.translate(None, _NOT_IN_TEXT) != head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
