"""Micro-batches on the device that computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from training.device import Device

    Batch = dict[str, torch.Tensor]

ON_DEVICE = ("input_ids", "labels", "position_ids", "source")
"""Entries of a batch that a step computes with; int64."""


def on_device(batch: Batch, device: Device) -> Batch:
    """Put the tensors of a micro-batch on the device; ids and labels become (micro_batch, seq_len).

    A GPU gets each storage once, as int32 from page-locked memory, and widens it: ids and labels of plain
    windows are views of one storage. Nothing waits for the device; torch's allocator of page-locked memory
    keeps a block until its copy is over.
    """
    import torch

    host = {name: batch[name] for name in ON_DEVICE if name in batch}
    found = dict(host)
    if device.kind != "cpu":
        storages: dict[int, torch.Tensor] = {}
        for name, tensor in host.items():
            key, whole = tensor.untyped_storage()._cdata, _storage(tensor, host)
            if whole is None:
                moved = device.put(tensor.to(torch.int32))
            else:
                if key not in storages:
                    storages[key] = device.put(whole.to(torch.int32))
                moved = storages[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            found[name] = moved.to(torch.int64, memory_format=torch.contiguous_format)
    # Shifted windows come as (micro_batch, seq_len // shift, shift); these models read them flat.
    return found | {name: found[name].flatten(1) for name in ("input_ids", "labels")}


def _storage(tensor: torch.Tensor, batch: Batch) -> torch.Tensor | None:
    """All numbers of its storage, if they are no more than those of the tensors that share it."""
    storage = tensor.untyped_storage()
    sharing = [one for one in batch.values() if one.untyped_storage()._cdata == storage._cdata]
    size = storage.nbytes() // tensor.element_size()
    return tensor.as_strided((size,), (1,), 0) if size <= sum(one.numel() for one in sharing) else None
