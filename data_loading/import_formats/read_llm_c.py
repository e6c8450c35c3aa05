"""llm.c: STEM_val_000000.bin, STEM_train_000001.bin ..., a header of 256 int32 and the tokens.

Source: github.com/karpathy/llm.c, dev/data/data_common.py and dev/data/fineweb.py (writers: 10^8 tokens
a file, the held-out one first, the end-of-text id *before* each document), llmc/dataloader.h,
train_gpt2.py and train_llama3.py (readers: magic, version and count must fit). Its two models have a kind
of file each: uint16 for GPT-2's 50,257 ids, uint32 for Llama 3's 128,256.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, count_values, first_gap

_INT = np.dtype("<i4")
_HEADER_INTS = 256
HEADER_BYTES = _HEADER_INTS * _INT.itemsize
_NAME = re.compile(r"(?:.*?_)?(train|val)(?:_(\d+))?\.bin")


@dataclass(frozen=True)
class FileKind:
    """Kind of file that the readers of one model expect."""

    model: str
    magic: int
    version: int
    dtype: np.dtype
    ids: int
    """Ids of the model's vocabulary."""
    begin_id: int
    """The id that llm.c's own writers put before each document."""

    def header(self, tokens: int) -> bytes:
        """Return the header of a file with this number of tokens."""
        values = np.zeros(_HEADER_INTS, _INT)
        values[:3] = self.magic, self.version, tokens
        return values.tobytes()


GPT2 = FileKind("GPT-2", 20240520, 1, np.dtype("<u2"), 50_257, 50_256)
LLAMA_3 = FileKind("Llama 3", 20240801, 7, np.dtype("<u4"), 128_256, 128_000)
KINDS = (GPT2, LLAMA_3)


class LlmC(Kind):
    """A file, or a folder of files with train and val in their names."""

    name = "llm.c"

    def sign(self, path: Path) -> str | None:
        for file in _files(path):
            magic = int.from_bytes(begins(file, _INT.itemsize), "little")
            if magic in [kind.magic for kind in KINDS]:
                return f"{file.name} begins with {magic}"
        return None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        files = _files(path)
        names = {file: _NAME.fullmatch(file.name) for file in files}
        splits = {
            split: [file for file, name in names.items() if name and name[1] == split]
            for split in ("train", "val")
        }
        if path.is_dir() and splits["train"]:
            parts = {split: self._layout(path, found) for split, found in splits.items() if found}
            return parts if len(parts) > 1 else {"all": parts["train"]}
        return {"all": self._layout(path, files)}

    def _layout(self, path: Path, files: list[Path]) -> SplitLayout:
        gap = first_gap([name[2] for file in files if (name := _NAME.fullmatch(file.name)) and name[2]])
        if gap:
            raise self.damaged(path, f"of files {files[0].name} to {files[-1].name} number {gap} is missing")
        try:
            kinds = {read_header(file) for file in files}
        except ValueError as error:
            raise self.damaged(path, str(error)) from None
        if len(kinds) > 1:
            raise self.damaged(path, "its files are of both kinds, GPT-2's and Llama 3's")
        kind = kinds.pop()
        tokens = Runs.of_files(kind.dtype, files, HEADER_BYTES)
        return SplitLayout(tokens, None, tuple(files), begin_ids=(kind.begin_id,))


def read_header(path: Path) -> FileKind:
    """Return the kind of a file whose header and length are right. Raises ValueError."""
    header = np.fromfile(path, _INT, _HEADER_INTS)
    if len(header) < _HEADER_INTS:
        raise ValueError(f"{path.name} is shorter than its header")
    magic, version, tokens = (int(value) for value in header[:3])
    kind = next((kind for kind in KINDS if (kind.magic, kind.version) == (magic, version)), None)
    if kind is None:
        raise ValueError(f"{path.name} begins with {magic} and version {version}, expected a header of llm.c")
    found = count_values(path, kind.dtype, HEADER_BYTES)
    if found != tokens or not tokens:
        raise ValueError(f"{path.name} has {found:,} tokens, its header says {tokens:,}")
    return kind


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(file for file in path.glob("*.bin") if file.is_file())
