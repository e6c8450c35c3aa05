"""The micro-batch of `auto` is tried on a GPU if its memory is close, and only then."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import tiny_config

from memory.estimate.available import Room
from models import build_model
from training.distributed.ranks import Ranks
from training.plan.run_plan import make_plan, resolve
from training.run import probe
from training.run.probe import fits_a_pass, settle_micro_batch


def on_fake_gpu(tmp_path: Path, room: Room | None = None) -> tuple[Any, Any]:
    """A run and a model, as on a GPU whose tensors are those of the CPU."""
    config = resolve(tiny_config(tmp_path, micro_batch="auto"))
    plan = make_plan(config, tokenize=True, room=room or Room())
    device = SimpleNamespace(
        kind="cuda", torch_device=torch.device("cpu"), autocast=nullcontext, put=lambda tensor: tensor
    )
    run = SimpleNamespace(
        config=config,
        plan=plan,
        device=device,
        is_pinned=False,
        ranks=Ranks(),
        loss_chunk=256,
        folder=tmp_path,
    )
    return run, build_model(config.model, config.arch, 257, config.training.seq_len)


@pytest.mark.parametrize("refused", [None, "kept", "parameters"])
def test_pass_on_a_gpu_has_room_for_what_the_optimizer_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str | None
) -> None:
    run, model = on_fake_gpu(tmp_path)
    parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    sizes = {"kept": 2 * parameters, "parameters": parameters}
    asked: list[int] = []
    empty = torch.empty

    def limited(*shape: Any, **options: Any) -> torch.Tensor:
        if options.get("dtype") == torch.uint8:
            asked.append(shape[0])
            if shape[0] == sizes.get(refused or ""):
                raise torch.OutOfMemoryError("CUDA out of memory")
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", limited)
    rng = torch.get_rng_state()
    assert fits_a_pass(run, model, 2) == (refused is None)
    assert torch.equal(torch.get_rng_state(), rng)
    assert asked == list(sizes.values())[: 1 if refused == "kept" else 2], "AdamW's two moments, then a copy"
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("words", ["CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", "CUDA error: out of memory"])
def test_library_without_room_for_its_handle_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    run, model = on_fake_gpu(tmp_path)

    def refuse(*arguments: Any) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(probe, "_pass", refuse)
    assert not fits_a_pass(run, model, 2)
    words = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal"):
        fits_a_pass(run, model, 2)


@pytest.mark.parametrize(("total_bytes", "tried"), [(None, True), (1 << 37, False), (1 << 20, True)])
def test_gpu_of_unknown_memory_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total_bytes: int | None, tried: bool
) -> None:
    run, model = on_fake_gpu(tmp_path, Room(gpu_total_bytes=total_bytes))
    asked: list[int] = []
    monkeypatch.setattr(type(run.plan.memory.estimate), "gpu_bytes", 1 << 20)
    monkeypatch.setattr(probe, "fits_a_pass", lambda run, model, size: not asked.append(size))
    settle_micro_batch(run, model)
    assert asked == ([4] if tried else [])


def test_micro_batch_becomes_the_largest_of_which_a_pass_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, model = on_fake_gpu(tmp_path)
    asked: list[int] = []
    taken: list[int] = []
    monkeypatch.setattr(probe, "fits_a_pass", lambda run, model, size: asked.append(size) or size <= 1)
    monkeypatch.setattr(probe, "take_smaller", lambda run, size: taken.append(size))
    settle_micro_batch(run, model)
    assert (asked, taken) == ([4, 2, 1], [1])
    run.device.kind = "cpu"
    settle_micro_batch(run, model)
    assert asked == [4, 2, 1], "on a CPU the estimate decides"
