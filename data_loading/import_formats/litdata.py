"""Chunks of litdata: index.json and chunk-0-0.bin ..., whose items are 1-D arrays of ids.

Source: github.com/Lightning-AI/litData, streaming/writer.py (`_create_chunk`: uint32 number of items, uint32
byte offsets of items and the end, the items), streaming/item_loader.py (TokensLoader: an item is its ids;
PyTreeLoader: before the leaves of an item the uint32 bytes of each), streaming/serializers.py and
constants.py (`no_header_tensor:CODE`, `no_header_numpy:CODE`: places in two lists of dtypes).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.import_formats.byte_ranges import Places, Runs, starts_at
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, read_object
from experiment_utils.errors import UserError

_TORCH = {11: "u1", 12: "i1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8", 20: "<u2"}
_NUMPY = dict(enumerate(("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8")))
_CODES = {"no_header_tensor": _TORCH, "no_header_numpy": _NUMPY}
_INT = np.dtype("<u4")


@dataclass(frozen=True)
class _Chunk:
    path: Path
    offsets: np.ndarray
    """`(items + 1,)` uint32: byte at which each item begins, and the end."""


class LitData(Kind):
    """A folder with index.json and chunks."""

    name = "litdata"

    def sign(self, path: Path) -> str | None:
        index = read_object(path / "index.json") if path.is_dir() else None
        is_one = (
            index is not None
            and isinstance(index.get("chunks"), list)
            and isinstance(index.get("config"), dict)
        )
        return "index.json with chunks" if is_one else None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        index = read_object(path / "index.json")
        if index is None:
            raise self.damaged(path, "its index.json cannot be read")
        config = index["config"]
        dtype, is_bare = self._dtype(path, config), config.get("item_loader") == "TokensLoader"
        if not index["chunks"]:
            raise self.damaged(path, "index.json names no chunk")
        chunks = [self._chunk(path, fact) for fact in index["chunks"]]
        pieces, parts, first = [], [], 0
        for number, chunk in enumerate(chunks):
            head = 0 if is_bare else _INT.itemsize
            begin = chunk.offsets[:-1].astype(np.int64) + head
            lengths, rest = np.divmod(np.diff(chunk.offsets.astype(np.int64)) - head, dtype.itemsize)
            if (lengths < 0).any() or rest.any():
                raise self.damaged(chunk.path, f"its items are no whole number of {dtype.name}")
            tokens = int(lengths.sum())
            if is_bare:
                start, itemsize = int(chunk.offsets[0]), dtype.itemsize
                pieces.append((np.array([number]), np.array([start]), np.array([tokens])))
                parts.append(Places(chunk.offsets[:-1], itemsize, first - start // itemsize))
            else:
                pieces.append((np.full(len(lengths), number), begin, lengths))
                parts.append(Places(np.cumsum(lengths) - lengths, 1, first))
            first += tokens
        files = [chunk.path for chunk in chunks]
        runs = Runs(dtype, files, *(np.concatenate(column) for column in zip(*pieces, strict=True)))
        return {"all": SplitLayout(runs, starts_at(parts), tuple(files))}

    def _dtype(self, path: Path, config: dict[str, Any]) -> np.dtype:
        for name in ("compression", "encryption"):
            if config.get(name):
                raise UserError(
                    f"{path} holds chunks of litdata with {name} {config[name]}, which cannot be mapped. "
                    f"Write them again without: litdata.optimize(..., {name}=None), from "
                    f"StreamingDataset({str(path)!r})",
                    code="litdata-compressed",
                )
        formats = config.get("data_format")
        name, _, code = str(formats[0] if isinstance(formats, list) and formats else formats).partition(":")
        found = _CODES.get(name, {}).get(int(code)) if code.isdigit() else None
        if not isinstance(formats, list) or len(formats) != 1 or found is None:
            raise UserError(
                f"{path} holds items of litdata with data_format {formats}; expected items of one 1-D "
                "tensor or array of ids (no_header_tensor or no_header_numpy of integers). Write only ids: "
                "litdata.optimize(fn=lambda i: OLD[i]['input_ids'], inputs=list(range(len(OLD))), "
                "item_loader=TokensLoader(), ...)",
                code="litdata-format",
            )
        return np.dtype(found)

    def _chunk(self, path: Path, fact: dict[str, Any]) -> _Chunk:
        """Return the offsets of a chunk that fits the index and its file."""
        try:
            name, items, size = str(fact["filename"]), int(fact["chunk_size"]), int(fact["chunk_bytes"])
        except (KeyError, TypeError, ValueError):
            raise self.damaged(path, f"index.json describes a chunk as {fact}") from None
        file = path / name
        if Path(name).name != name or not file.is_file():
            raise self.damaged(path, f"{name}, which index.json names, is missing")
        there, header = file.stat().st_size, (2 + items) * _INT.itemsize
        if there != size:
            raise self.damaged(file, f"it has {there:,} bytes, index.json says {size:,}")
        head = np.frombuffer(begins(file, _INT.itemsize), _INT)
        if len(head) == 0 or int(head[0]) != items or there < header:
            raise self.damaged(
                file, f"it does not begin with the number of its items, {items:,} as index.json says"
            )
        offsets = np.memmap(file, _INT, mode="r", offset=_INT.itemsize, shape=(items + 1,))
        if offsets[0] != header or offsets[-1] != there or (offsets[1:] < offsets[:-1]).any():
            raise self.damaged(file, f"its items do not fill bytes {header:,} to {there:,}, the end")
        return _Chunk(file, offsets)
