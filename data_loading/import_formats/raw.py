"""Raw ids without a header: train.bin and val.bin of nanoGPT, a lone .bin, an .npy without a header (OLMo).

Source: github.com/karpathy/nanoGPT, data/*/prepare.py (writers: uint16, meta.pkl) and train.py (reader);
github.com/allenai/OLMo, olmo/data/memmap_dataset.py (files called .npy that are read by offset, uint16 or
uint32, without the header of NumPy).
"""

from __future__ import annotations

from pathlib import Path

from conf import AUTO
from data_loading.export_formats.write_nanogpt import DTYPE
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout, begins, begins_as_text
from data_loading.import_formats.meta_pickle import read_vocab_size
from data_loading.import_formats.raw_dtype import dtype_of
from data_loading.tokens.npy import is_npy
from experiment_utils.errors import UserError
from memory.file_kinds import KINDS_LIKE_IDS, not_expected

GPT2_ROWS = 50_304
"""nanoGPT's vocabulary where there is no meta.pkl: GPT-2's, rounded up."""


class NanoGPT(Kind):
    name = "nanoGPT"

    def sign(self, path: Path) -> str | None:
        if not (path / "train.bin").is_file():
            return None
        return "train.bin and val.bin" if (path / "val.bin").is_file() else "train.bin"

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        names = [name for name in ("train", "val") if (path / f"{name}.bin").is_file()]
        said = read_vocab_size(path / "meta.pkl")
        files = [path / f"{name}.bin" for name in names]
        known = Asked(asked.dtype, said or asked.vocab_size or GPT2_ROWS)
        dtype, told = dtype_of(files, known, usual=DTYPE.name)
        parts = {
            name: Layout(
                Runs.of_files(dtype, [file]), None, (file,), said, "meta.pkl" if said else None, told
            )
            for name, file in zip(names, files, strict=True)
        }
        return parts if len(parts) > 1 else {"all": parts["train"]}


class Raw(Kind):
    """A weak sign: a name, and that nothing else is known by these bytes."""

    name = "raw ids"

    def sign(self, path: Path) -> str | None:
        if not path.is_file() or not path.name.endswith((".bin", ".npy")):
            return None
        if path.suffix == ".npy" and is_npy(path):
            return None
        is_other = not_expected(path, "raw ids", KINDS_LIKE_IDS) is not None or begins_as_text(path)
        return None if is_other else f"a {path.suffix} without a header"

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        said = read_vocab_size(path.parent / "meta.pkl") if path.suffix == ".bin" else None
        known = Asked(asked.dtype, said or asked.vocab_size)
        try:
            dtype, told = dtype_of([path], known, usual=DTYPE.name if said else None)
        except UserError as error:
            if path.suffix == ".npy" and asked.dtype == AUTO:
                told = f"{path} is no .npy file: it begins with {begins(path, 8)!r}. As raw ids: {error}"
                raise UserError(
                    f"{told}. Raw ids can be given a header: np.save(OUT, np.fromfile(FILE, dtype))",
                    code="npy-without-header",
                ) from None
            raise
        layout = Layout(Runs.of_files(dtype, [path]), None, (path,), said, "meta.pkl" if said else None, told)
        return {"all": layout}
