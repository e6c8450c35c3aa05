"""Put micro-batches on the device that computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from training.devices.device import Device

    Batch = dict[str, torch.Tensor]

ON_DEVICE = ("input_ids", "labels", "position_ids", "source")
"""Entries of a batch that a step uses; int64."""


def on_device(batch: Batch, device: Device, into: Batch | None = None) -> Batch:
    """Put the tensors of a micro-batch on the device; ids and labels become (micro_batch, seq_len).

    A GPU gets each storage once, as int32 from page-locked memory, and widens it: ids and labels of plain
    windows are views of one storage. Nothing waits for the device; torch's allocator of page-locked memory
    keeps a block until its copy is over.

    Args:
        into: tensors on the device that get the values, as the graph of a step reads them; None: new ones.
    """
    import torch

    host = {name: batch[name] for name in ON_DEVICE if name in batch}
    storages: dict[int, torch.Tensor] = {}
    found = {}
    for name, tensor in host.items():
        moved = tensor if device.kind == "cpu" else _narrow_on_device(tensor, host, storages, device)
        # Shifted windows come as (micro_batch, seq_len // shift, shift); these models read them flat.
        moved = moved.flatten(1) if name in ("input_ids", "labels") else moved
        if into is not None:
            found[name] = into[name].copy_(moved)
        elif device.kind == "cpu":
            found[name] = moved
        else:
            found[name] = moved.to(torch.int64, memory_format=torch.contiguous_format)
    return found


def _narrow_on_device(
    tensor: torch.Tensor, batch: Batch, storages: dict[int, torch.Tensor], device: Device
) -> torch.Tensor:
    """The tensor as int32 on the device. storages: those that are there already, by their addresses here."""
    import torch

    storage = tensor.untyped_storage()
    sharing = [one for one in batch.values() if one.untyped_storage()._cdata == storage._cdata]
    size = storage.nbytes() // tensor.element_size()
    if size > sum(one.numel() for one in sharing):  # most of it is not of this batch
        return device.put(tensor.to(torch.int32))
    if storage._cdata not in storages:
        storages[storage._cdata] = device.put(tensor.as_strided((size,), (1,), 0).to(torch.int32))
    return storages[storage._cdata].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
