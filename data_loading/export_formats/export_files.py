"""Write the files of an export in constant memory, hashed as they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from data_loading.text_io.content_hash import ContentHash


class HashedFile:
    """A file that takes bytes and arrays."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.content = ContentHash()
        self.bytes = 0

    def write(self, data: bytes | np.ndarray) -> None:
        view = memoryview(data if isinstance(data, bytes) else data.data)
        view = view.cast("B") if len(data) else memoryview(b"")
        self._file.write(view)
        self.content.update(view)
        self.bytes += len(view)


class ExportWriter:
    """Write files into a new folder. `files`: bytes and content hash of each, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[str, dict[str, Any]] = {}

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """Yield a new file; it is on the device when the block ends."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            hashed = HashedFile(file)
            yield hashed
            file.flush()
            os.fsync(file.fileno())
        self.files[name] = {"bytes": hashed.bytes, "content_hash": hashed.content.hexdigest()}


def even_sizes(total: int, at_most: int) -> list[int]:
    """Return the fewest sizes, which differ by one at most: readers refuse or overweight a tiny last file."""
    count = -(-total // at_most)
    return [total * (n + 1) // count - total * n // count for n in range(count)]


def write_parts(
    writer: ExportWriter,
    parts: Sequence[tuple[str, int]],
    slices: Iterator[np.ndarray],
    dtype: np.dtype,
    header: Callable[[int], bytes] = lambda tokens: b"",
) -> None:
    """Write a stream of tokens into files.

    Args:
        writer: Where the files are written.
        parts: (name, tokens) of each file.
        slices: The tokens.
        dtype: Of the tokens in the files.
        header: Returns the header of a file from its number of tokens.
    """
    rest = np.empty(0, dtype)
    for name, tokens in parts:
        with writer.file(name) as file:
            file.write(header(tokens))
            left = tokens
            while left:
                if not len(rest):
                    rest = next(slices)
                part, rest = rest[:left], rest[left:]
                file.write(np.ascontiguousarray(part, dtype))
                left -= len(part)
