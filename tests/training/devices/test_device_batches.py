from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.devices.device import Device
from training.devices.device_batches import on_device

ROWS, SEQ = 3, 8


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Tensors that a GPU would be given. Its place is taken by the CPU."""
    found: list[Tensor] = []
    monkeypatch.setattr(Device, "put", lambda self, tensor: found.append(tensor) or tensor.clone())
    return found


def plain() -> dict[str, Tensor]:
    """Batch as the loader makes it: views of one storage."""
    ids = torch.arange(ROWS * (SEQ + 1)).view(ROWS, SEQ + 1)
    return {"input_ids": ids.narrow(1, 0, SEQ), "labels": ids.narrow(1, 1, SEQ)}


def check(batch: dict[str, Tensor], moved: dict[str, Tensor]) -> None:
    for name, tensor in moved.items():
        assert tensor.dtype == torch.int64
        assert tensor.is_contiguous()
        assert torch.equal(tensor, batch[name].reshape(tensor.shape))


def test_plain_windows_travel_once_as_int32(copies: list[Tensor]) -> None:
    batch = plain()
    check(batch, on_device(batch, Device("cuda", "fp32", 1)))
    assert [(tuple(one.shape), one.dtype) for one in copies] == [((ROWS * (SEQ + 1),), torch.int32)]
    assert copies[0].is_contiguous()


def test_each_tensor_of_its_own_travels_once(copies: list[Tensor]) -> None:
    batch = {name: tensor.contiguous() for name, tensor in plain().items()}
    batch["labels"][0, :3] = -100
    batch |= {
        "position_ids": torch.arange(SEQ).expand(ROWS, SEQ).contiguous(),
        "source": torch.tensor([2, 0, 1]),
    }
    batch |= {"cu_seqlens": torch.zeros(4, dtype=torch.int32), "reset": torch.zeros(ROWS, dtype=torch.bool)}
    moved = on_device(batch, Device("cuda", "fp32", 1))
    assert set(moved) == {"input_ids", "labels", "position_ids", "source"}
    check(batch, moved)
    assert len(copies) == 4


def test_rows_of_a_large_storage_travel_without_the_rest(copies: list[Tensor]) -> None:
    ids = torch.arange(100 * (SEQ + 1)).view(100, SEQ + 1)[7 : 7 + ROWS]
    batch = {"input_ids": ids.narrow(1, 0, SEQ), "labels": ids.narrow(1, 1, SEQ)}
    check(batch, on_device(batch, Device("cuda", "fp32", 1)))
    assert [one.numel() for one in copies] == [ROWS * SEQ] * 2


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_shifted_windows_are_flat(copies: list[Tensor], kind: str) -> None:
    batch = {name: tensor.reshape(ROWS, SEQ // 2, 2) for name, tensor in plain().items()}
    moved = on_device(batch | {"shift": torch.tensor(2)}, Device(kind, "fp32", 1))
    assert moved["input_ids"].shape == moved["labels"].shape == (ROWS, SEQ)
    assert torch.equal(moved["labels"], batch["labels"].flatten(1))


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_tensors_of_a_graph_get_the_values(copies: list[Tensor], kind: str) -> None:
    batch = plain()
    into = {name: torch.zeros((ROWS, SEQ), dtype=torch.int64) for name in batch}
    before = {name: tensor.data_ptr() for name, tensor in into.items()}
    moved = on_device(batch, Device(kind, "fp32", 1), into)
    assert {name: tensor.data_ptr() for name, tensor in moved.items()} == before
    check(batch, into)


def test_cpu_computes_with_the_tensors_of_the_loader(copies: list[Tensor]) -> None:
    batch = plain()
    moved = on_device(batch, Device("cpu", "fp32", 1))
    assert moved["labels"].data_ptr() == batch["labels"].data_ptr()
    assert not copies
