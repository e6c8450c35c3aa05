"""The memory of a batch: passed between processes with its views kept, or put where a GPU can fetch it.

input_ids and labels are views of one tensor, which is passed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]


class View(NamedTuple):
    """A tensor as a view of the storage of that number; strides and offset count elements."""

    storage: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Packed(NamedTuple):
    """A batch as plain values. storages: uint8."""

    views: dict[str, View]
    storages: list[np.ndarray]


def packed(batch: Batch) -> Packed:
    """The batch on the CPU; its storages are not copied."""
    import torch

    numbers: dict[int, int] = {}
    storages: list[np.ndarray] = []
    views = {}
    for name, tensor in batch.items():
        storage = tensor.untyped_storage()
        number = numbers.setdefault(storage.data_ptr(), len(numbers))
        if number == len(storages):
            storages.append(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())
        views[name] = View(
            number, tensor.dtype, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
        )
    return Packed(views, storages)


def unpacked(found: Packed) -> Batch:
    """The batch; its tensors use the storages as they are."""
    import torch

    storages = [torch.from_numpy(storage) for storage in found.storages]
    return {
        name: torch.empty(0, dtype=view.dtype).set_(
            storages[view.storage].untyped_storage(), view.offset, view.shape, view.stride
        )
        for name, view in found.views.items()
    }


def check_pinnable() -> None:
    """Raises UserError: memory is locked for a GPU, and torch sees none."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "pin_memory is for a GPU, and torch sees none here. Take pin_memory away",
            code="pin-memory-without-gpu",
        )


def pinned(batch: Batch) -> Batch:
    """A copy in page-locked memory, from which a GPU fetches while the CPU continues. Its tensors are
    contiguous: a copy to the GPU from others is not asynchronous.
    """
    return {name: tensor.contiguous().pin_memory() for name, tensor in batch.items()}
