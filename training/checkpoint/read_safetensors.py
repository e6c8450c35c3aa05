"""Read a safetensors file into new tensors, without a copy or a memory map.

The library's `load` takes a copy of the file's content. Its `load_file` maps the file, which counts against
`ulimit -d` and `-v` and ends in SIGBUS if the file is truncated meanwhile. The format:
https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import math
import os
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.files.file_kinds import not_expected

if TYPE_CHECKING:
    import torch

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
"""Dtypes of a run: name in the format -> name in torch."""

_LENGTH_BYTES = 8


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of a file by name, on the CPU.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no safetensors file, or truncated.
    """
    other = not_expected(path, "weights as safetensors", ("safetensors",))
    if other is not None:
        raise ValueError(other)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if _LENGTH_BYTES + length > size:
            raise ValueError(f"{path} is cut short, or no safetensors file")
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError(f"{path} is no safetensors file")
        header.pop("__metadata__", None)
        start = _LENGTH_BYTES + length
        return {name: _read(file, path, name, facts, start, size) for name, facts in header.items()}


def _read(file: BufferedReader, path: Path, name: str, facts: Any, start: int, size: int) -> torch.Tensor:
    import torch

    try:
        dtype, shape = getattr(torch, _DTYPES[facts["dtype"]]), [int(length) for length in facts["shape"]]
        begin, end = facts["data_offsets"]
        is_sound = (
            0 <= begin <= end <= size - start
            and min(shape, default=0) >= 0
            and end - begin == math.prod(shape) * dtype.itemsize
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {name} is not described as safetensors does it: {error!r}") from error
    if not is_sound:
        raise ValueError(f"{path}: {name} lies outside of the file, or has another size than its shape")
    tensor = torch.empty(shape, dtype=dtype)
    file.seek(start + begin)
    if file.readinto(tensor.reshape(-1).view(torch.uint8).numpy().data) != end - begin:
        raise ValueError(f"{path} was cut short while it was read")
    return tensor
