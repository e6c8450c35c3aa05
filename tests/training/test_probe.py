"""The micro-batch of `auto` is tried where memory is close, and only there."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked import exit_code_of
from tiny_run import make_run, run_here, tiny_config

from memory.estimate.available import Room
from memory.measure.process import read_process
from models import build_model
from training import probe
from training.attempt.run_files import read_run
from training.distributed.ranks import Ranks
from training.plan import make_plan, resolve
from training.probe import data_limited, fits_a_pass, settle_micro_batch

MB = 1 << 20
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_what_does_not_fit_is_an_error_and_no_kill() -> None:
    def fill() -> None:
        with data_limited(read_process(os.getpid()).anon_bytes + (400 << 20)):
            held = torch.zeros(200 << 18)
            with pytest.raises(RuntimeError, match="allocate"):  # 600 MB where 400 are free
                torch.zeros(400 << 18)
            assert held.sum() == 0
        assert torch.zeros(400 << 18).sum() == 0
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY

    assert exit_code_of(fill) == 0


def test_where_nothing_can_be_limited_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(probe, "read_file", lambda path: None)
    with data_limited(0):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_auto_becomes_what_a_pass_went_through_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, micro_batch="auto", max_steps=3, evals=1)
    asked: list[int] = []

    def fits(run: Any, model: Any, micro_batch: int, free_bytes: int) -> bool:
        asked.append(micro_batch)
        return micro_batch <= 1

    monkeypatch.setattr(probe, "fits_a_pass", fits)
    assert run_here(make_run(config)).returncode == 0
    assert asked == [], "far from the limit nothing is tried"
    monkeypatch.setattr(probe, "CLOSE", 0.0)
    folder = make_run(dataclasses.replace(config, seed=1))
    assert run_here(folder).returncode == 0
    assert asked == [4, 2, 1]
    run = read_run(folder)
    assert (run["auto"]["micro_batch"], run["micro_batch"], run["accumulation"]) == (1, 1, 4)


def test_trying_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, micro_batch="auto", max_steps=6, evals=2)
    plain = make_run(config)
    assert run_here(plain).returncode == 0
    monkeypatch.setattr(probe, "CLOSE", 0.0)
    tried = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "other")))
    assert run_here(tried).returncode == 0
    assert re.search(r"micro-batch 4\b.*\btried\b", (tried / "log.txt").read_text())
    results = [read_run(folder)["results"]["val_loss"] for folder in (plain, tried)]
    assert results[0] == results[1]
    assert torch.is_grad_enabled()


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
    assert fits_a_pass(run, model, 2, None) == (refused is None)
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
    assert not fits_a_pass(run, model, 2, None)
    words = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal"):
        fits_a_pass(run, model, 2, None)


@pytest.mark.parametrize(("total_bytes", "tried"), [(None, True), (1 << 37, False), (1 << 20, True)])
def test_gpu_of_unknown_memory_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total_bytes: int | None, tried: bool
) -> None:
    run, model = on_fake_gpu(tmp_path, Room(gpu_total_bytes=total_bytes))
    asked: list[int] = []
    monkeypatch.setattr(type(run.plan.memory.estimate), "gpu_bytes", 1 << 20)
    monkeypatch.setattr(probe, "fits_a_pass", lambda run, model, size, free: not asked.append(size))
    settle_micro_batch(run, model)
    assert asked == ([4] if tried else [])
