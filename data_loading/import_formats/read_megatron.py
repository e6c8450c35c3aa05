"""Megatron .bin with .idx: the index is read as `formats/megatron.py` lays it out."""

from __future__ import annotations

from pathlib import Path

from data_loading.export_formats.exporter import NotThisFormat
from data_loading.export_formats.write_megatron import MAGIC, DocumentStarts, read_index
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout, begins
from experiment_utils.errors import UserError

_LEGACY = b"TNTIDX\x00\x00"


class Megatron(Kind):
    """A stem, its .bin or .idx, or a folder with one such pair."""

    name = "Megatron"

    def sign(self, path: Path) -> str | None:
        for index in _indices(path):
            found = begins(index, len(MAGIC))
            if found == MAGIC or found.startswith(_LEGACY):
                return f"{index.name} begins with {found!r}"
        return None

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        indices = _indices(path)
        if len(indices) > 1:
            stems = ", ".join(str(index.with_suffix("")) for index in indices)
            raise UserError(
                f"{path} holds {len(indices)} sets of Megatron: {stems}. Say which is trained on and which "
                "is held out: dataset.path=STEM dataset.val_path=STEM",
                code="megatron-several-sets",
            )
        if begins(indices[0], len(_LEGACY)) == _LEGACY:
            raise UserError(
                f"{indices[0]} is an index of Megatron's older kinds (lazy, cached). Make it anew: "
                "tools/preprocess_data.py --dataset-impl mmap",
                code="megatron-old-index",
            )
        try:
            index = read_index(indices[0])
        except NotThisFormat as error:
            raise self.damaged(path, str(error)) from None
        except FileNotFoundError as error:
            raise self.damaged(path, f"{error.filename} is missing") from None
        files = (index.bin_path, index.path)
        return {"all": Layout(Runs.of_files(index.dtype, files[:1]), DocumentStarts(index), files)}


def _indices(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.idx"))
    index = (
        path.with_suffix(".idx") if path.suffix in (".bin", ".idx") else path.with_name(f"{path.name}.idx")
    )
    return [index] if index.is_file() else []
