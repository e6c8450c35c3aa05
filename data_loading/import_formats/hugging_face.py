"""Folders of Hugging Face `save_to_disk`: state.json, dataset_info.json and Arrow files, with lists of ids.

Source: github.com/huggingface/datasets, arrow_dataset.py (`save_to_disk`: `_data_files` of state.json in
order, each an Arrow IPC stream), dataset_dict.py (dataset_dict.json, a folder for each split); Arrow
columnar format (a list column: int32 or int64 offsets into one buffer of values, per record batch). Also
folders chunk_000000/, chunk_000001/ ..., each of which is such a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.import_formats.byte_ranges import Places, Runs, starts_at
from data_loading.import_formats.format import Asked, Kind, SplitLayout, first_gap, read_object
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed
from memory.files.file_kinds import not_expected

if TYPE_CHECKING:
    import pyarrow

_COLUMN = "input_ids"
_CHUNK = re.compile(r"chunk_(\d+)")
_INTEGERS = {"uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4",
             "uint64": "<u8", "int64": "<i8"}  # fmt: skip


class HuggingFace(Kind):
    """A folder of `save_to_disk`, or of chunk_000000/ ... that are such folders."""

    name = "Hugging Face save_to_disk"

    def sign(self, path: Path) -> str | None:
        if not path.is_dir():
            return None
        folder = next(iter(_chunks(path)), path)
        there = [name for name in ("state.json", "dataset_info.json") if (folder / name).is_file()]
        state = read_object(folder / "state.json") or {}
        if "_data_files" in state or len(there) == 2:
            return f"{' and '.join(there)} in {folder}"
        return None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        check_installed("pyarrow", "parquet", f"reading {path}")
        chunks = _chunks(path)
        gap = first_gap([folder.name.removeprefix("chunk_") for folder in chunks], first=0)
        if gap is not None:
            raise self.damaged(path, f"the folder chunk_{gap} is missing")
        files = [file for folder in chunks or [path] for file in self._files(folder)]
        pieces, parts, first = [], [], 0
        kinds: dict[np.dtype, Path] = {}
        for number, file in enumerate(files):
            for dtype, offset_bytes, starts in self._batches(file):
                kinds.setdefault(dtype, file)
                tokens = int(starts[-1] - starts[0])
                pieces.append((number, offset_bytes, tokens))
                parts.append(Places(starts[:-1], 1, first - int(starts[0])))
                first += tokens
        if len(kinds) > 1:
            dtypes = " and ".join(f"{dtype.name} in {file}" for dtype, file in kinds.items())
            raise self.damaged(path, f"its ids are {dtypes}")
        if not pieces:
            raise self.damaged(path, "there is no record in it")
        table = np.array(pieces, np.int64)
        runs = Runs(next(iter(kinds)), files, table[:, 0], table[:, 1], table[:, 2])
        return {"all": SplitLayout(runs, starts_at(parts), tuple(files))}

    def _files(self, folder: Path) -> list[Path]:
        state = read_object(folder / "state.json")
        named = (state or {}).get("_data_files")
        if not isinstance(named, list) or not all(
            isinstance(item, dict) and "filename" in item for item in named
        ):
            raise self.damaged(folder, "its state.json is missing or names no _data_files")
        files = [folder / item["filename"] for item in named]
        for file in files:
            if not file.is_file():
                raise self.damaged(folder, f"{file.name}, which state.json names, is missing")
        return files

    def _batches(self, file: Path) -> Iterator[tuple[np.dtype, int, np.ndarray]]:
        """Yield (dtype, byte of the first value, offsets of the lists and the end) of each record batch."""
        import pyarrow

        try:
            mapped = pyarrow.memory_map(str(file)).read_buffer()
            reader = pyarrow.ipc.open_stream(mapped)
            field = self._field(file, reader.schema)
            for batch in reader:
                if batch.num_rows:
                    yield self._lists(file, mapped, batch.column(field))
            end = mapped[mapped.size - 8 :].to_pybytes() if mapped.size >= 8 else b""
            if end != b"\xff\xff\xff\xff\x00\x00\x00\x00":
                raise self.damaged(file, "it has no end-of-stream mark: it was cut short")
        except pyarrow.ArrowException as error:
            if (other := not_expected(file, "an Arrow stream", ("arrow-stream",))) is not None:
                raise UserError(other, code="other-kind-of-file") from None
            raise self.damaged(file, f"it is no whole Arrow stream ({error})") from None
        except OSError as error:
            raise self.damaged(file, f"it cannot be read ({error})") from None

    def _field(self, file: Path, schema: pyarrow.Schema) -> int:
        import pyarrow

        place = schema.get_field_index(_COLUMN)
        kind: Any = schema.field(place).type if place >= 0 else None
        types = pyarrow.types
        is_list = place >= 0 and (
            types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        )
        if not is_list or str(kind.value_type) not in _INTEGERS:
            there = ", ".join(f"{field.name} ({field.type})" for field in schema)
            raise UserError(
                f"{file} has the columns {there}; expected {_COLUMN}, a list of integers. If the ids "
                f"have another name: dataset.rename_column('NAME', '{_COLUMN}').save_to_disk(OUT). If "
                "there is only text, tokenize it: python pretokenize_dataset.py FOLDER/*.arrow",
                code="ids-column-missing",
            )
        return place

    def _lists(self, file: Path, mapped: pyarrow.Buffer, lists: Any) -> tuple[np.dtype, int, np.ndarray]:
        import pyarrow

        values = lists.values
        if lists.null_count or values.null_count:
            raise self.damaged(file, f"some of its {_COLUMN} are null")
        dtype = np.dtype(_INTEGERS[str(values.type)])
        if pyarrow.types.is_fixed_size_list(lists.type):
            starts = (np.arange(len(lists) + 1) + lists.offset) * lists.type.list_size
        else:
            offset = np.dtype("<i8" if pyarrow.types.is_large_list(lists.type) else "<i4")
            first_byte = lists.offset * offset.itemsize
            starts = np.frombuffer(lists.buffers()[1], offset, len(lists) + 1, first_byte)
        buffer = values.buffers()[1]
        if buffer is None:
            return dtype, 0, starts
        at = buffer.address - mapped.address
        if not 0 <= at <= mapped.size:
            raise UserError(
                f"{file} is compressed inside, which cannot be mapped. Save it again: "
                "datasets.load_from_disk(FOLDER).save_to_disk(OUT)",
                code="arrow-compressed",
            )
        return dtype, at + (values.offset + int(starts[0])) * dtype.itemsize, starts


def _chunks(path: Path) -> list[Path]:
    return sorted(
        folder for folder in path.glob("chunk_*") if _CHUNK.fullmatch(folder.name) and folder.is_dir()
    )
