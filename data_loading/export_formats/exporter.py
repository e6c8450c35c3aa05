"""Base class of the export formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf import AUTO
from data_loading.export_formats.contents import Contents, Split
from data_loading.export_formats.export_files import ExportWriter
from data_loading.import_formats.format import Asked, Kind
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import Values


@dataclass(frozen=True)
class Reading:
    """An export that was read back, memory-mapped."""

    tokens: dict[str, Values]
    """By split."""
    documents: Values | None
    """Starts in the tokens of `all`; None if the format does not keep them."""


class Format(ABC):
    """One way to write tokens into files."""

    name: str
    """Name in `--format`."""
    has_val: bool
    """Whether it keeps train and val apart."""
    kind: Kind
    """Reader of the same files."""
    dtype: str = AUTO
    """Dtype of the tokens, if the files do not name it."""

    def problem(self, tokenizer: Tokenizer) -> str | None:
        """Return why tokens of this tokenizer cannot be written, None if they can."""
        return None

    def notes(self, contents: Contents) -> Iterator[str]:
        """Yield what a user of the export should know about it."""
        yield from ()

    def stream(self, split: Split) -> Iterator[np.ndarray]:
        """Yield the tokens of a split in the order of this format, in slices."""
        return split.slices()

    @abstractmethod
    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        """Write the files. Raises OSError."""

    def read(self, folder: Path) -> Reading:
        """Open the files in a folder as the format's own reader does, without our record.

        Raises:
            UserError: That reader would refuse them.
            OSError: They cannot be read.
        """
        expected = ["train", "val"] if self.has_val else ["all"]
        if self.kind.sign(folder) is None:
            raise self.kind.damaged(folder, "its main file is missing or does not begin as expected")
        layouts = self.kind.open(folder, Asked(self.dtype))
        if sorted(layouts) != expected:
            raise self.kind.damaged(
                folder, f"there is {' and '.join(layouts)}, expected {' and '.join(expected)}"
            )
        tokens: dict[str, Values] = {split: layout.tokens for split, layout in layouts.items()}
        return Reading(tokens, None if self.has_val else layouts["all"].documents)
