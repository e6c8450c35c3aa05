"""Token files as other programs write them, each laid out by hand from its own writer."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

Items = Sequence[np.ndarray]
_LITDATA_CODES = {
    "int32": "no_header_tensor:16",
    "int64": "no_header_tensor:18",
    "uint16": "no_header_numpy:5",
}


def some_items(
    dtype: str = "int32", count: int = 12, vocab_size: int = 257, seed: int = 0
) -> list[np.ndarray]:
    """Items of 1 to 400 ids."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 400, count)
    return [random.integers(0, vocab_size, size).astype(dtype) for size in sizes]


def write_litdata(folder: Path, items: Items, a_chunk: int = 5, *, pytree: bool = False) -> Path:
    """litdata 0.2.76: streaming/writer.py `_create_chunk` and `get_config`, item_loader.py `encode_data`."""
    folder.mkdir(parents=True)
    chunks = []
    for number, first in enumerate(range(0, len(items), a_chunk)):
        there = items[first : first + a_chunk]
        encoded = [(struct.pack("<I", item.nbytes) if pytree else b"") + item.tobytes() for item in there]
        header = (2 + len(there)) * 4
        offsets = np.cumsum([header, *map(len, encoded)])
        data = np.array([len(there), *offsets], "<u4").tobytes() + b"".join(encoded)
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        dim = None if pytree else sum(map(len, there))
        chunks.append({"chunk_bytes": len(data), "chunk_size": len(there), "dim": dim, "filename": name})
    config = {
        "chunk_bytes": None, "chunk_size": a_chunk, "compression": None, "encryption": None,
        "data_format": [_LITDATA_CODES[items[0].dtype.name]], "data_spec": "[1, null]",
        "item_loader": "PyTreeLoader" if pytree else "TokensLoader",
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config, "updated_at": "1"}))
    return folder


def write_mds(
    folder: Path, items: Items, a_shard: int = 5, *, encoding: str | None = None, beside: bool = False
) -> Path:
    """mosaicml-streaming 0.13: base/format/mds/writer.py `encode_sample` and `encode_joint_shard`,
    encodings.py `NDArray.encode`. encoding: of column `tokens`. beside: columns id (int) and text (str) too.
    """
    folder.mkdir(parents=True)
    encoding = encoding or f"ndarray:{items[0].dtype.name}"
    size = items[0].nbytes if encoding.count(":") == 2 else None
    columns = {"tokens": (encoding, size)}
    if beside:
        columns = {"id": ("int", 8), "text": ("str", None), **columns}
    config = {
        "column_encodings": [kind for kind, _ in columns.values()], "column_names": list(columns),
        "column_sizes": [bytes_ for _, bytes_ in columns.values()], "compression": None, "format": "mds",
        "hashes": [], "size_limit": 1 << 26, "version": 2,
    }  # fmt: skip
    told, shards = json.dumps(config, sort_keys=True).encode(), []
    for number, first in enumerate(range(0, len(items), a_shard)):
        samples = [_mds_sample(item, encoding, beside) for item in items[first : first + a_shard]]
        offsets = np.cumsum([4 * (len(samples) + 2) + len(told), *map(len, samples)])
        data = np.array([len(samples), *offsets], "<u4").tobytes() + told + b"".join(samples)
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(data)
        raw = {"basename": name, "bytes": len(data), "hashes": {}}
        shards.append({**config, "raw_data": raw, "samples": len(samples), "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}, sort_keys=True))
    return folder


def _mds_sample(item: np.ndarray, encoding: str, beside: bool) -> bytes:
    data = item.tobytes()
    if encoding.count(":") == 1:
        width = next(width for width in (0, 1, 2) if len(item) < 1 << (8 << width))
        data = bytes([1 << 2 | width]) + np.array([len(item)], f"<u{1 << width}").tobytes() + data
    sizes = [len(data)] if encoding.count(":") != 2 else []
    body = data
    if beside:
        sizes, body = [2, *sizes], struct.pack("<q", 3) + b"ab" + data
    return np.array(sizes, "<u4").tobytes() + body


def write_templar(
    folder: Path, ids: np.ndarray, slice_tokens: int, shards: int = 2, *, header: bool = True
) -> Path:
    """templar: scripts/dataset_prep/01_pretokenize_data.py `save_shard`, 02_consolidate_shards.py (ids by
    np.save, though called .bin), src/tplr/sharded_dataset.py (which reads them raw).
    """
    folder.mkdir(parents=True)
    for number, part in enumerate(np.split(ids, shards)):
        np.save(folder / f"train_{number:06d}.npy", part)
        sample_ids = np.arange(len(part) // slice_tokens, dtype="<u8") + (1 << 40)
        path = folder / f"sample_ids_{number:06d}.bin"
        if header:
            with open(path, "wb") as file:
                np.save(file, sample_ids)
        else:
            path.write_bytes(sample_ids.tobytes())
    return folder


def write_save_to_disk(folder: Path, items: Items, shards: int = 1) -> Path:
    """By the package `datasets` itself, with a column of text beside the ids."""
    from datasets import Dataset, Features, Sequence, Value

    features = Features({"input_ids": Sequence(Value(items[0].dtype.name)), "text": Value("string")})
    rows = {"input_ids": [item.tolist() for item in items], "text": ["water"] * len(items)}
    Dataset.from_dict(rows, features=features).save_to_disk(folder, num_shards=shards)
    return folder
