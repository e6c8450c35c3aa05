"""What every format can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.export_formats.contents import ArrayLike, Contents, Split
from data_loading.export_formats.export_files import ExportWriter
from data_loading.tokenizers.tokenizer import Tokenizer


class NotThisFormat(Exception):
    """Files are not what the format's own reader would take; the text says which and why."""


@dataclass(frozen=True)
class Reading:
    """Memory-mapped. tokens: of each split. documents: starts in the tokens of `all`, where they are kept."""

    tokens: dict[str, ArrayLike]
    documents: ArrayLike | None = None


class Format(ABC):
    """One way to lay tokens into files.

    name: as in `--format`. has_val: whether it tells apart what is trained on and what is held out.
    """

    name: str
    has_val: bool

    def problem(self, tokenizer: Tokenizer) -> str | None:
        """Why tokens of this tokenizer cannot be written so; None where they can."""
        return None

    def notes(self, contents: Contents) -> Iterator[str]:
        """What a user of the export should know about it."""
        yield from ()

    def stream(self, split: Split) -> Iterator[np.ndarray]:
        """The tokens of a split in the order in which this format has them, in slices."""
        return split.slices()

    @abstractmethod
    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        """Write the files. Raises OSError."""

    @abstractmethod
    def read(self, folder: Path) -> Reading:
        """Open what lies in a folder, looking only at what the format itself says, not at our record.

        Raises:
            NotThisFormat: it could not be read by those it is meant for.
            OSError: it cannot be read at all.
        """


def count(path: Path, dtype: np.dtype, offset_bytes: int = 0) -> int:
    """Values in the rest of a file. Raises NotThisFormat, OSError."""
    size = path.stat().st_size
    if size < offset_bytes or (size - offset_bytes) % dtype.itemsize:
        raise NotThisFormat(f"{path.name} has {size:,} bytes, which is no whole number of {dtype.name}")
    return (size - offset_bytes) // dtype.itemsize


def mapped(path: Path, dtype: np.dtype, offset_bytes: int = 0) -> np.ndarray:
    """The rest of a file as an array, memory-mapped. Raises NotThisFormat, OSError."""
    if count(path, dtype, offset_bytes) == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset_bytes)
