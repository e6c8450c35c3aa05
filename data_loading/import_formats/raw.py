"""Ids without a header: train.bin and val.bin of nanoGPT, a lone .bin, an .npy without a header (OLMo).

Source: github.com/karpathy/nanoGPT, data/openwebtext/prepare.py and data/shakespeare_char/prepare.py
(writers: uint16, an end-of-text id after each document, meta.pkl with vocab_size, itos and stoi), train.py
and sample.py (readers: GPT-2's vocabulary of 50,304 rows if there is no meta.pkl);
github.com/allenai/OLMo, olmo/data/memmap_dataset.py (files called .npy that are read by offset, uint16 or
uint32, without the header of NumPy).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from conf import AUTO
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, begins_as_text
from data_loading.import_formats.meta_pickle import read_vocab_size
from data_loading.import_formats.raw_dtype import dtype_of
from data_loading.tokens.npy import is_npy
from experiment_utils.errors import UserError
from memory.files.file_kinds import KINDS_LIKE_IDS, not_expected

NANOGPT_DTYPE = np.dtype("<u2")
META = "meta.pkl"
_GPT2_ROWS = 50_304
"""nanoGPT's vocabulary without meta.pkl: GPT-2's, rounded up."""


class NanoGPT(Kind):
    """A folder with train.bin, and val.bin and meta.pkl if they exist."""

    name = "nanoGPT"

    def sign(self, path: Path) -> str | None:
        if not (path / "train.bin").is_file():
            return None
        return "train.bin and val.bin" if (path / "val.bin").is_file() else "train.bin"

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        files = {split: path / f"{split}.bin" for split in ("train", "val")}
        files = {split: file for split, file in files.items() if file.is_file()}
        size = read_vocab_size(path / META)
        known = Asked(asked.dtype, size or asked.vocab_size or _GPT2_ROWS)
        dtype, reason = dtype_of(list(files.values()), known, usual=NANOGPT_DTYPE.name)
        parts = {split: _layout(file, dtype, size, reason) for split, file in files.items()}
        return parts if len(parts) > 1 else {"all": parts["train"]}


class Raw(Kind):
    """One file. A weak sign: its name, and bytes that show no other kind of file."""

    name = "raw ids"

    def sign(self, path: Path) -> str | None:
        if not path.is_file() or not path.name.endswith((".bin", ".npy")):
            return None
        if path.suffix == ".npy" and is_npy(path):
            return None
        is_other = not_expected(path, "raw ids", KINDS_LIKE_IDS) is not None or begins_as_text(path)
        return None if is_other else f"a {path.suffix} without a header"

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        size = read_vocab_size(path.parent / META) if path.suffix == ".bin" else None
        known = Asked(asked.dtype, size or asked.vocab_size)
        try:
            dtype, reason = dtype_of([path], known, usual=NANOGPT_DTYPE.name if size else None)
        except UserError as error:
            if path.suffix == ".npy" and asked.dtype == AUTO:
                raise UserError(
                    f"{path} is no .npy file: it begins with {begins(path, 8)!r}. As raw ids: {error}. Raw "
                    "ids can be given a header: np.save(OUT, np.fromfile(FILE, dtype))",
                    code="npy-without-header",
                ) from None
            raise
        return {"all": _layout(path, dtype, size, reason)}


def _layout(file: Path, dtype: np.dtype, vocab_size: int | None, reason: str | None) -> SplitLayout:
    tokens = Runs.of_files(dtype, [file])
    return SplitLayout(tokens, None, (file,), vocab_size, META if vocab_size else None, reason)
