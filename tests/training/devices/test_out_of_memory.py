"""A run whose GPU is out of memory: what says so, and how the attempt continues or ends."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import (
    copy_of,
    make_run,
    metrics_without_clock,
    mixed_config,
    outcome,
    run_here,
    tiny_config,
    with_documents,
)

from conf import Config
from conf.budget import milestones
from conf.schema import Arch
from memory.measure.cuda_allocator import Gpu
from tests.forked import killed_at
from tests.golden_text import Golden
from tests.training.recorded_operations import RecordedOperations
from training.attempt.run_files import read_run, read_status
from training.devices import device_batches, out_of_memory
from training.devices.out_of_memory import is_device_oom
from training.devices.step_clock import HostMark
from training.run import exit_reason as ending
from training.run.micro_batch import SplitBatches, died_for_memory
from training.step.graphed_step import GraphedStep
from training.step.train_step import Step

OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
SHORT = {
    "max_steps": 9, "evals": 3, "checkpoint_every": 4, "eval_tokens": 128, "effective_batch": 8,
    "micro_batch": 4,
}  # fmt: skip


def pin_memory(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_errors_of_a_full_device_are_known(words: str) -> None:
    assert is_device_oom(OOM)
    assert is_device_oom(RuntimeError(words))
    assert is_device_oom(torch.AcceleratorError(words))
    assert not is_device_oom(ValueError(words))
    with pytest.raises(RuntimeError) as raised:
        pin_memory(RuntimeError(words))
    is_of_host = "asynchronously" in words
    assert is_device_oom(raised.value) != is_of_host, "cudaHostAlloc has the bare words too"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        MemoryError("out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_not_the_devices(error: BaseException) -> None:
    assert not is_device_oom(error)


def batch_of(first: int, rows: int = 4) -> dict[str, torch.Tensor]:
    ids = torch.arange(first, first + rows)[:, None].expand(rows, 3)
    return {"input_ids": ids, "cu_seqlens": torch.zeros(9), "source": torch.arange(first, first + rows)}


def firsts(batches: SplitBatches, count: int) -> list[tuple[int, int]]:
    found = [next(batches) for _ in range(count)]
    assert all(torch.equal(batch["source"], batch["input_ids"][:, 0]) for batch in found)
    return [(int(batch["input_ids"][0, 0]), len(batch["input_ids"])) for batch in found]


def test_an_unfinished_step_is_read_again_in_parts() -> None:
    done = 0
    batches = SplitBatches((batch_of(4 * number) for number in range(10)), lambda: done)
    assert firsts(batches, 2) == [(0, 4), (4, 4)]
    done = 1
    assert firsts(batches, 1) == [(8, 4)]
    batches.split(2)
    assert firsts(batches, 3) == [(8, 2), (10, 2), (12, 2)]
    batches.split(2)
    assert firsts(batches, 8) == [(at, 1) for at in range(8, 16)]
    done = 2
    batches.split(1)
    assert firsts(batches, 1) == [(16, 1)], "the step before was finished"


class SmallDevice:
    """A device that from some moment on has room for `rows` rows of a batch alone.

    since: of that moment: the step that is taken, from 0, else None, and how many batches of it were put.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, rows: int, since: Callable[[int | None, int], bool]
    ) -> None:
        self.refused, self._is_small = 0, False
        put, take = device_batches.on_device, Step.take
        number: int | None = None
        calls = 0

        def counted(step: Step, batches: Any, lr: float, at: int = 0) -> Any:
            nonlocal number, calls
            number, calls = at, 0
            try:
                return take(step, batches, lr, at)
            finally:
                number = None

        def limited(batch: dict[str, torch.Tensor], *arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            self._is_small = self._is_small or since(number, calls)
            if self._is_small and len(batch["input_ids"]) > rows:
                self.refused += 1
                raise torch.OutOfMemoryError(str(OOM))
            return put(batch, *arguments)

        monkeypatch.setattr(Step, "take", counted)
        for module in ("training.step.train_step", "training.devices.device_batches"):
            monkeypatch.setattr(f"{module}.on_device", limited)


CASES: dict[str, Callable[[Path], Config]] = {
    "plain": lambda folder: tiny_config(folder, **SHORT),
    "dropout": lambda folder: dataclasses.replace(
        tiny_config(folder, **SHORT), arch=Arch(dropout_residual=0.1, dropout_embedding=0.1)
    ),
    "states of rows": lambda folder: with_data(
        tiny_config(folder, **SHORT),
        Arch(family="lstm", bias="linear", state_reset=0.2),
        windows="streams",
    ),
    "masked": lambda folder: with_documents(tiny_config(folder, **SHORT)),
    "mixture": lambda folder: mixed_config(folder, **SHORT),
}


def with_data(config: Config, arch: Arch | None = None, **dataset: Any) -> Config:
    data = dataclasses.replace(config.dataset, **dataset)
    return dataclasses.replace(config, arch=arch or config.arch, dataset=data)


def with_micro_batch(config: Config, size: int | str) -> Config:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, micro_batch=size))


@pytest.fixture(autouse=True)
def auto_is_4(monkeypatch: pytest.MonkeyPatch) -> None:
    auto_of_4(monkeypatch)


def auto_of_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conf.budget.AUTO_MICRO_BATCH_TOKENS", dict.fromkeys(("cpu", "cuda"), 4 * 16))


def restarted_by_hand(config: Config, folder: Path, at: int = 4) -> Path:
    """The reference: killed behind the checkpoint of a step, restarted with half the micro-batch."""
    run = copy_of(config, folder)
    count = 1 + [3, 4].index(at)  # the first evaluation, at 3, has a checkpoint too
    assert killed_at("checkpoint:after_rename", lambda: run_here(run, "--quiet"), count=count)
    assert copy_of(with_micro_batch(config, 2), folder) == run
    assert run_here(run, "--quiet").returncode == 0
    assert attempts(run)[-1]["resumed_from_step"] == at
    return run


def evaluated_at(config: Config) -> list[int]:
    return milestones(9, 3, config.training.eval_spacing)


def attempts(folder: Path) -> list[dict[str, Any]]:
    return read_run(folder)["attempts"]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("plain", 1),
        ("plain", 2),
        ("dropout", 2),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in sorted({*CASES} - {"plain", "dropout"})),
    ],
)
def test_run_continues_as_if_restarted_by_hand(
    name: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory in the first or the second micro-batch of step 5."""
    config = CASES[name](tmp_path)
    reference = restarted_by_hand(config, tmp_path / "reference")
    folder = make_run(with_micro_batch(config, "auto"))
    device = SmallDevice(monkeypatch, 2, lambda step, put: step == 4 and put >= calls)
    assert run_here(folder, "--quiet").returncode == 0
    assert device.refused == 1
    assert outcome(folder) == outcome(reference)
    run = read_run(folder)
    assert (run["auto"]["micro_batch"], run["micro_batch"], run["accumulation"]) == (2, 2, 4)
    (attempt,) = attempts(folder)
    assert attempt["how"]["micro_batch"] == 4
    assert attempt["smaller_micro_batch"] == [{"since_step": 5, "micro_batch": 2, "before": 4}]
    assert (folder / "log.txt").read_text().count("CUDA") == 1


def test_run_that_does_not_fit_from_its_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, **SHORT)
    reference = copy_of(with_micro_batch(config, 1), tmp_path / "reference")
    assert run_here(reference, "--quiet").returncode == 0
    folder = make_run(with_micro_batch(config, "auto"))
    device = SmallDevice(monkeypatch, 1, lambda step, put: True)
    assert run_here(folder, "--quiet").returncode == 0
    assert device.refused == 2, "4 and 2"
    assert outcome(folder) == outcome(reference)
    changes = [(one["since_step"], one["micro_batch"]) for one in attempts(folder)[0]["smaller_micro_batch"]]
    assert changes == [(1, 2), (1, 1)]


def test_evaluation_that_does_not_fit_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(tiny_config(tmp_path, **SHORT), arch=Arch(dropout_residual=0.2))
    folder = make_run(with_micro_batch(config, "auto"))
    device = SmallDevice(monkeypatch, 2, lambda step, put: step is None)
    assert run_here(folder, "--quiet").returncode == 0
    assert device.refused == 1
    first = evaluated_at(config)[0]
    assert first == 3
    (change,) = attempts(folder)[0]["smaller_micro_batch"]
    assert (change["since_step"], change["micro_batch"]) == (first + 1, 2)
    assert [int(row["step"]) for row in metrics_without_clock(folder)] == list(range(1, 10))
    records = [json.loads(line)["step"] for line in (folder / "evals.jsonl").read_text().splitlines()]
    assert records == evaluated_at(config)
    monkeypatch.undo()
    monkeypatch.setattr("conf.budget.AUTO_MICRO_BATCH_TOKENS", dict.fromkeys(("cpu", "cuda"), 4 * 16))
    reference = restarted_by_hand(config, tmp_path / "reference", at=first)
    losses = [[row["train_loss"] for row in metrics_without_clock(one)] for one in (folder, reference)]
    assert losses[0] == losses[1], "dropout is on again behind the evaluation"


@pytest.mark.slow
def test_graphs_of_the_step_are_recorded_again_for_the_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[RecordedOperations] = []

    def graphed(run: Any, step: Step) -> GraphedStep:
        recorded.append(RecordedOperations())
        return GraphedStep(step, recorded[-1], HostMark, is_settled=True)

    def evaluates() -> bool:
        status = read_status(folder)
        return (status.get("stage"), status.get("step")) == ("evaluate", 10)

    monkeypatch.setattr("training.step.train_step.FP32_LR_ON", ("cpu", "cuda"))
    config = with_micro_batch(tiny_config(tmp_path, **(SHORT | {"max_steps": 20, "evals": 2})), "auto")
    folder = copy_of(config, tmp_path / "eager")
    device = SmallDevice(monkeypatch, 2, lambda *_: evaluates())
    assert run_here(folder, "--quiet").returncode == 0
    assert device.refused == 1
    monkeypatch.undo()
    auto_of_4(monkeypatch)
    monkeypatch.setattr("training.step.train_step.FP32_LR_ON", ("cpu", "cuda"))
    monkeypatch.setattr("training.step.graphed_step.graphed", graphed)
    eager, folder = folder, make_run(config)
    device = SmallDevice(monkeypatch, 2, lambda *_: evaluates())
    assert run_here(folder, "--quiet").returncode == 0
    assert device.refused == 2, "the graphs are freed first, which does not help here"
    assert outcome(folder) == outcome(eager)
    first, second = recorded
    assert first.replays
    assert second.replays.count("_add_gradients") == 3 * second.replays.count("_begin_gradients")


def test_killed_run_resumes_with_the_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, **SHORT)
    reference = restarted_by_hand(config, tmp_path / "reference")
    folder = make_run(with_micro_batch(config, "auto"))
    SmallDevice(monkeypatch, 2, lambda step, put: step == 4)
    assert killed_at("checkpoint:after_rename", lambda: run_here(folder, "--quiet"), count=3)
    assert attempts(folder)[0]["smaller_micro_batch"][0]["since_step"] == 5
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(reference)
    assert attempts(folder)[1]["how"]["micro_batch"] == 2
    assert "smaller_micro_batch" not in attempts(folder)[1]


@pytest.mark.parametrize(
    ("micro_batch", "rows", "advice"),
    [
        (4, 2, "training.micro_batch=2"),
        ("auto", 0, "activation_checkpointing=true"),
        (1, 0, "activation_checkpointing=true"),
    ],
)
def test_run_ends_where_no_smaller_one_is_left(
    micro_batch: int | str,
    rows: int,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    config = with_micro_batch(tiny_config(tmp_path, **SHORT), micro_batch)
    folder = make_run(config)
    SmallDevice(monkeypatch, rows, lambda step, put: step == 4)
    assert run_here(folder, "--quiet").returncode == 1
    status = read_status(folder)
    assert status["state"] == "oom"
    assert advice in status["reason"]
    golden.text(status["reason"], numbers=False)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir())[-1] == "step-00000004"
    monkeypatch.undo()
    assert run_here(folder, "--quiet").returncode == 0
    assert [int(row["step"]) for row in metrics_without_clock(folder)] == list(range(1, 10))


def test_error_of_the_optimizer_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Some weights may have moved by then, and activations are freed: a smaller micro-batch does not help."""
    folder = make_run(with_micro_batch(tiny_config(tmp_path, **SHORT), "auto"))

    def refuse(*arguments: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError(str(OOM))

    monkeypatch.setattr(sys.modules["torch.optim.adam"], "adam", refuse)  # which AdamW.step calls
    assert run_here(folder, "--quiet").returncode == 1
    status = read_status(folder)
    assert status["state"] == "oom"
    assert status["reason"].count("=") == 1
    golden.text(status["reason"], numbers=False)
    assert "smaller_micro_batch" not in attempts(folder)[0]
    monkeypatch.undo()
    assert run_here(folder, "--quiet").returncode == 0
    assert attempts(folder)[1]["how"]["micro_batch"] == 2, "the next attempt is smaller"


def test_frames_of_the_error_hold_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the failed step are freed before it is computed again."""
    import weakref

    held: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    put = device_batches.on_device

    def limited(batch: dict[str, torch.Tensor], *arguments: Any) -> Any:
        if len(batch["input_ids"]) > 2:
            activations = torch.ones(100)
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError(str(OOM))
        alive.extend(one() is not None for one in held)
        return put(batch, *arguments)

    for module in ("training.step.train_step", "training.devices.device_batches"):
        monkeypatch.setattr(f"{module}.on_device", limited)
    assert (
        run_here(make_run(with_micro_batch(tiny_config(tmp_path, **SHORT), "auto")), "--quiet").returncode
        == 0
    )
    assert held
    assert alive
    assert not any(alive)


def test_reason_names_what_held_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    gib = 1 << 30
    gpu = Gpu(0, "H100", 60 * gib, 64 * gib, 60 * gib, 80 * gib, free_bytes=8 * gib)
    kinds = [
        {"kind": "parameters", "where": "cuda:0", "bytes": 2 * gib},
        {"kind": "saved", "where": "cuda:0", "bytes": 50 * gib},
        {"kind": "parameters", "where": "anon", "bytes": gib},
    ]
    monkeypatch.setattr(out_of_memory, "read_gpu", lambda: gpu)
    monkeypatch.setattr("memory.attribute.attribute", lambda: SimpleNamespace(kinds=kinds))
    error = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    run = {
        "micro_batch": 1,
        "config": {"training": {"micro_batch": "auto"}},
        "memory": {
            "gpu_bytes": 60 * gib,
            "savings": {
                "training.micro_batch=4": {"gpu_bytes": gib},
                "training.loss_chunk=512": {"gpu_bytes": 60 * gib},
                "training.activation_checkpointing=true": {"gpu_bytes": 30 * gib},
            },
        },
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "status.json").write_text(json.dumps({"stage": "train"}))
    state, code, reason = ending.ending_of(error, tmp_path)
    assert (state, code) == ("oom", 1)
    assert re.findall(r"([\d.]+) GB", reason) == ["80.0", "2.0", "50.0", "8.0", "4.0", "8.0", "8.0"]
    assert reason.endswith(" training.activation_checkpointing=true")
    golden.text(reason)
    alone = dataclasses.replace(gpu, reserved_bytes=20 * gib, allocated_bytes=10 * gib, free_bytes=gib)
    monkeypatch.setattr(out_of_memory, "read_gpu", lambda: alone)
    assert "nvidia-smi" in out_of_memory.reason_of(error, tmp_path)
    monkeypatch.setattr(out_of_memory, "read_gpu", lambda: None)
    (tmp_path / "status.json").write_text(json.dumps({"stage": "build_model"}))
    golden.text(out_of_memory.reason_of(error, tmp_path), "without GPU")


@pytest.mark.parametrize(
    "status",
    [
        {"state": "oom", "reason": None},
        {"state": "failed", "reason": "rank 1 failed: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED"},
    ],
)
def test_next_attempt_knows_of_it(tmp_path: Path, status: dict[str, Any]) -> None:
    (tmp_path / "status.json").write_text(json.dumps(status))
    assert died_for_memory(tmp_path, {"attempts": [{"attempt": 1}]})
