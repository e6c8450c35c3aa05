"""What an offline run of W&B holds, read from its file as `wandb sync` does (LevelDB's log, protobuf)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32 << 10, struct.Struct("<IHB")
_BEGINS_AT = 7
_WHOLE, _LAST = 1, 4


@dataclass
class Offline:
    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read_offline(folder: Path) -> Offline:
    """The one offline run in a folder `wandb`; two would be one too many."""
    (path,) = folder.glob("offline-run-*/run-*.wandb")
    found = Offline()
    for record in _records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            found.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    at, part = _BEGINS_AT, b""
    while at + _HEADER.size <= len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEADER.size:
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        if kind == 0:
            return
        at += _HEADER.size
        part, at = part + data[at : at + length], at + length
        if kind in (_WHOLE, _LAST):
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""
