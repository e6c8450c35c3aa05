"""MDS shards of mosaicml-streaming: index.json and shard.00000.mds ..., with a column of ids.

Source: github.com/mosaicml/streaming, base/format/mds/writer.py (a shard: uint32 number of samples, uint32
byte offsets of samples and the end, the columns as JSON, the samples; a sample: uint32 bytes of each column
of no fixed size, then the columns, by name) and encodings.py (`ndarray:DTYPE`: a byte of dimensions << 2 |
log2 of the bytes of one, the dimensions, the values; `ndarray:DTYPE:SHAPE`: the values; `bytes`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.import_formats.byte_ranges import Places, Runs, starts_at
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, read_object
from data_loading.import_formats.mosaic_samples import Column, find_values
from experiment_utils.errors import UserError

_INT = np.dtype("<u4")
_NAMES = ("tokens", "input_ids")
_PROGRAMS = {"zstd": "zstd -d", "gz": "gzip -d", "bz2": "bzip2 -d", "br": "brotli -d"}
"""Programs that decompress the shards, by the compression in index.json."""


@dataclass(frozen=True)
class _Shard:
    """Entry of a shard in index.json."""

    name: str
    bytes: int
    samples: int
    packed: str | None
    """Name of the compressed file."""
    compression: str
    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @classmethod
    def of(cls, fact: dict[str, Any]) -> _Shard:
        """Read an entry. Raises KeyError, TypeError, ValueError, AttributeError: something is missing."""
        columns = zip(*(fact[f"column_{key}"] for key in ("names", "encodings", "sizes")), strict=True)
        names, encodings, sizes = zip(*columns, strict=True)
        return cls(
            name=str(fact["raw_data"]["basename"]),
            bytes=int(fact["raw_data"]["bytes"]),
            samples=int(fact["samples"]),
            packed=(fact.get("zip_data") or {}).get("basename"),
            compression=str(fact.get("compression")),
            names=names,
            encodings=tuple(map(str, encodings)),
            sizes=tuple(None if size is None else int(size) for size in sizes),
        )


class Mosaic(Kind):
    """A folder with index.json and MDS shards."""

    name = "mosaicml-streaming"

    def sign(self, path: Path) -> str | None:
        index = read_object(path / "index.json") if path.is_dir() else None
        shards = index.get("shards") if index is not None else None
        return "index.json with shards" if isinstance(shards, list) and "version" in (index or {}) else None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        shards = self._shards(path)
        columns = {_column(path, shard, asked) for shard in shards}
        if len(columns) > 1:
            raise self.damaged(path, f"its shards have different columns: {columns}")
        column = columns.pop()
        files, pieces, parts, first = [], [], [], 0
        for number, shard in enumerate(shards):
            file = self._file(path, shard)
            offsets = self._offsets(file, shard.samples)
            try:
                begin, lengths = find_values(
                    np.memmap(file, np.uint8, mode="r"), offsets, column, trusting=asked.is_checked
                )
            except ValueError as error:
                raise self.damaged(file, str(error)) from None
            parts.append(Places(np.cumsum(lengths) - lengths, 1, first))
            if len(begin) and (begin[1:] == begin[:-1] + lengths[:-1] * column.dtype.itemsize).all():
                begin, lengths = begin[:1], np.array([lengths.sum()])
            pieces.append((np.full(len(begin), number), begin, lengths))
            files.append(file)
            first += int(lengths.sum())
        runs = Runs(column.dtype, files, *(np.concatenate(part) for part in zip(*pieces, strict=True)))
        return {"all": SplitLayout(runs, starts_at(parts), tuple(files))}

    def _shards(self, path: Path) -> list[_Shard]:
        index = read_object(path / "index.json")
        if index is None:
            raise self.damaged(path, "its index.json cannot be read")
        facts = index["shards"]
        if index["version"] != 2 or any(
            not isinstance(fact, dict) or fact.get("format") != "mds" for fact in facts
        ):
            raise UserError(
                f"{path}/index.json is of version {index['version']}; expected 2, with shards of mds. Write "
                "it with MDSWriter",
                code="mosaic-version",
            )
        if not facts:
            raise self.damaged(path, "index.json names no shard")
        try:
            return [_Shard.of(fact) for fact in facts]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.damaged(
                path, f"index.json describes a shard without a field or with a wrong one ({error!r})"
            ) from None

    def _file(self, path: Path, shard: _Shard) -> Path:
        name, packed = shard.name, shard.packed
        file = path / name
        if not file.is_file() and packed and (path / packed).is_file():
            program = _PROGRAMS.get(shard.compression.split(":")[0])
            raise UserError(
                f"{path} is compressed ({shard.compression}), which cannot be mapped. Decompress the shards"
                + (f" ({program} {shlex.quote(str(path))}/*{packed[len(name) :]})" if program else "")
                + ", or write them again with MDSWriter(compression=None)",
                code="mosaic-compressed",
            )
        if Path(name).name != name or not file.is_file():
            raise self.damaged(path, f"{name}, which index.json names, is missing")
        if file.stat().st_size != shard.bytes:
            raise self.damaged(file, f"it has {file.stat().st_size:,} bytes, index.json says {shard.bytes:,}")
        return file

    def _offsets(self, file: Path, samples: int) -> np.ndarray:
        """Return the byte at which each sample begins, and the end: `(samples + 1,)` int64."""
        header, size = (2 + samples) * _INT.itemsize, file.stat().st_size
        head = np.frombuffer(begins(file, _INT.itemsize), _INT)
        if len(head) == 0 or int(head[0]) != samples or size < header:
            raise self.damaged(file, f"it does not begin with the number of its samples, {samples:,}")
        mapped = np.memmap(file, _INT, mode="r", offset=_INT.itemsize, shape=(samples + 1,))
        offsets = mapped.astype(np.int64)
        if offsets[0] < header or offsets[-1] != size or (np.diff(offsets) < 0).any():
            raise self.damaged(file, f"its samples do not end at the end of the file, byte {size:,}")
        return offsets


def _column(path: Path, shard: _Shard, asked: Asked) -> Column:
    """Return the column of ids of a shard."""
    names, encodings, sizes = shard.names, shard.encodings, shard.sizes
    usable = [name for name, encoding in zip(names, encodings, strict=True) if _is_usable(encoding)]
    chosen = [name for name in _NAMES if name in usable] or usable
    if not usable or (len(chosen) > 1 and chosen[0] not in _NAMES):
        there = ", ".join(f"{name} ({encoding})" for name, encoding in zip(names, encodings, strict=True))
        raise UserError(
            f"{path} has the columns {there}; expected one of ids, of ndarray:uint16, uint32, int32 or "
            "int64, or bytes, called tokens or input_ids where there are several. Write such shards with "
            "MDSWriter",
            code="mosaic-columns",
        )
    place = names.index(chosen[0])
    encoding = encodings[place]
    if encoding != "bytes":
        name = encoding.split(":")[1]
    elif asked.dtype != "auto":
        name = asked.dtype
    else:
        raise UserError(
            f"{path}: column {chosen[0]} is bytes, and the files do not name the dtype of its ids. Set "
            "dataset.dtype=int64 (what LLM Foundry writes), or uint16, uint32, int32",
            code="mosaic-dtype-unknown",
        )
    dtype = np.dtype(name).newbyteorder("<")
    return Column(dtype, place, sizes, encoding.startswith("ndarray") and encoding.count(":") == 1)


def _is_usable(encoding: str) -> bool:
    dtype = encoding.split(":")[1] if encoding.startswith("ndarray:") else None
    return encoding == "bytes" or re.fullmatch("u?int(8|16|32|64)", dtype or "") is not None
