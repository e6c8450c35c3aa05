"""A step is the same whatever the portions it is read in; evaluation always reads the same tokens."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import tiny_config
from torch.overrides import TorchFunctionMode

from conf.schema import Arch, Model, Optimizer
from data_loading import StreamingDataset, open_held_out, prepare_data
from models import build_model
from training.devices.device import Device, measure_peak_flops, resolve_device
from training.evaluation.evaluate import evaluate, evaluation_windows
from training.optimizers import build_optimizer
from training.step.train_step import Step

CPU = Device("cpu", "fp32", 1)


def batches(micro: int, total: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50, (total, 9), generator=generator)
    return [
        {"input_ids": part[:, :-1].contiguous(), "labels": part[:, 1:].contiguous()}
        for part in ids.split(micro)
    ]


def masked(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Its labels below 20 left out, as across the borders of documents."""
    rows = len(batch["labels"])
    return {
        **batch,
        "labels": batch["labels"].where(batch["labels"] >= 20, -100),
        "position_ids": torch.arange(8).repeat(rows, 1),
    }


def weights_after(
    micro: int, grad_clip: float | None, mask: bool = False, arch: Arch | None = None
) -> tuple[torch.Tensor, float, float]:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), arch or Arch(), 50, 8)
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    step = [masked(batch) if mask else batch for batch in batches(micro, 8)]
    whole = Step(model, optimizer, CPU, accumulation=8 // micro, loss_chunk=256, grad_clip=grad_clip)
    result = whole.take(iter(step), 0.01)
    return model.embedding.weight.detach().clone(), result.loss.item(), result.grad_norm.item()


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_accumulation_changes_memory_not_the_mathematics(micro: int, mask: bool) -> None:
    """Also where micro-batches have other numbers of labels that count."""
    whole, loss, norm = weights_after(8, None, mask)
    parts, loss_in_parts, norm_in_parts = weights_after(micro, None, mask)
    assert loss_in_parts == pytest.approx(loss, rel=1e-5)
    assert norm_in_parts == pytest.approx(norm, rel=1e-4)
    # Adam divides by the gradient's own size: where that is rounding noise, so is the step.
    assert (parts - whole).abs().median() < 1e-6


def gradients_of(micro: int, arch: Arch, mask: bool) -> torch.Tensor:
    """All gradients of a step of 8 rows, in one vector."""
    model = build_model(
        Model(d_model=16, n_layers=2, n_heads=1), arch, 50, 8, torch.Generator().manual_seed(0)
    )
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    rows = [masked(batch) if mask else batch for batch in batches(micro, 8)]
    step = Step(model, optimizer, CPU, accumulation=8 // micro, loss_chunk=16, grad_clip=None)
    step.gradients(iter(rows))
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_balance_of_experts_does_not_depend_on_the_micro_batch(micro: int, mask: bool) -> None:
    arch = Arch(n_experts=4, balance_loss=1.0)
    whole = gradients_of(8, arch, mask)
    assert (gradients_of(micro, arch, mask) - whole).abs().max() < 1e-5 * whole.abs().max()
    without = gradients_of(8, dataclasses.replace(arch, balance_loss=0.0), mask)
    before = [
        gradients_of(size, dataclasses.replace(arch, balance_over="micro_batch"), mask) for size in (micro, 8)
    ]
    assert (whole - without).abs().max() > 1e-3 * whole.abs().max()
    assert (before[0] - before[1]).abs().max() > 1e-3 * whole.abs().max()


def test_the_norm_is_told_before_clipping() -> None:
    _, _, free = weights_after(8, None)
    _, _, clipped = weights_after(8, free / 100)
    assert clipped == pytest.approx(free)


@pytest.fixture
def val_set(tmp_path: Path) -> StreamingDataset:
    config = tiny_config(tmp_path)
    data = prepare_data(config.dataset, config.tokenizer, tokenize=True, log=print)
    return StreamingDataset(data, "val", 16, 0, order="sequential")


def test_evaluation_is_the_mean_over_fixed_tokens(val_set: StreamingDataset) -> None:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 257, 16)
    found = [
        evaluate(model, val_set, windows=21, batch_size=size, loss_chunk=256, device=CPU)
        for size in (1, 8, 21)
    ]
    assert {result.tokens for result in found} == {21 * 16}
    expected = torch.nn.functional.cross_entropy(
        model(val_set.__getitems__(range(21))["input_ids"]).flatten(0, 1),
        val_set.__getitems__(range(21))["labels"].flatten(),
    ).item()
    for result in found:
        assert result.loss == pytest.approx(expected, rel=1e-5)
        assert result.perplexity == pytest.approx(math.exp(expected), rel=1e-4)
    assert model.training


def test_bytes_are_those_of_the_labels_that_count(val_set: StreamingDataset) -> None:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 257, 16)
    lengths = np.arange(257)
    found = evaluate(
        model, val_set, windows=5, batch_size=2, loss_chunk=256, device=CPU, bytes_per_id=lengths
    )
    labels = val_set.__getitems__(range(5))["labels"]
    assert found.bytes_per_token == pytest.approx(labels.double().mean().item())
    assert found.bits_per_byte == pytest.approx(found.loss / math.log(2) / labels.double().mean().item())


def test_evaluation_windows_are_bounded_by_what_there_is() -> None:
    assert evaluation_windows(100, 1000, 128) == 8
    assert evaluation_windows(5, 1000, 128) == 5


def test_auto_on_a_cpu_is_fp32_and_what_was_chosen_is_kept() -> None:
    from conf.schema import Training
    from experiment_utils.errors import UserError

    first = resolve_device(Training(device="cpu"), {})
    assert (first.kind, first.precision) == ("cpu", "fp32")
    assert resolve_device(Training(), {"device": "cpu", "precision": "bf16", "threads": 7}) == Device(
        "cpu", "bf16", 7
    )
    assert resolve_device(Training(threads=3), {"threads": 7}).threads == 3
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r"training\.device"):
            resolve_device(Training(device="cuda"), {})


def test_a_device_that_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    from conf.schema import Training
    from experiment_utils.errors import UserError

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that what is set here does not stay
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    asked = Training(device="cpu", deterministic=True, threads=2)
    found = resolve_device(asked, {})
    assert not found.is_deterministic, "a CPU is so anyway"
    with pytest.raises(UserError) as raised:
        resolve_device(dataclasses.replace(asked, compile=True), {})
    assert raised.value.problems[0].where == "training.deterministic"
    assert resolve_device(dataclasses.replace(asked, compile=True, threads=1), {}).threads == 1
    threads = torch.get_num_threads()
    try:
        Device("cuda", "fp32", 1, is_deterministic=True).take()
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


def test_a_cpu_computes_products_in_fp32_whatever_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    from conf.schema import Training

    asked = Training(device="cpu", matmul_precision="medium")
    found = resolve_device(asked, {})
    assert found.matmul_precision == "highest"
    assert "training.matmul_precision=medium" in caplog.text
    caplog.clear()
    assert resolve_device(asked, {"device": "cpu", "matmul_precision": "highest"}) == found
    assert not caplog.text, "it was told before"
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    try:
        Device("cuda", "fp32", 1, "high").take()
        assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == ("high", 1)
        found.take()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.set_num_threads(before[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_computes_products_as_asked() -> None:
    from conf.schema import Training

    found = resolve_device(Training(matmul_precision="high"), {})
    assert (found.kind, found.matmul_precision) == ("cuda", "high")
    assert "high" in found.describe()


def test_a_peak_is_told_of_a_gpu_alone() -> None:
    assert measure_peak_flops(CPU) is None
    if torch.cuda.is_available():
        device = Device("cuda", "fp32", 1)
        first = measure_peak_flops(device)
        assert first is not None
        assert first > 0
        assert measure_peak_flops(device) == first, "measured once"


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A CPU behind the calls that a GPU gets; returns the names of those that were made."""
    calls: list[str] = []
    monkeypatch.setattr(Device, "torch_device", property(lambda self: torch.device("cpu")))
    monkeypatch.setattr("training.devices.device.GPU_MATRIX", 64)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, partial(calls.append, name))
    measure_peak_flops.cache_clear()
    return calls


def test_peak_is_of_random_numbers_once_and_leaves_nothing(
    simulated_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    products = []

    class Product(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.matmul or getattr(func, "__name__", "") in ("__matmul__", "matmul"):
                products.append(args[0].clone())
            return func(*args, **(kwargs or {}))

    before = torch.get_rng_state()
    with Product():
        first = measure_peak_flops(Device("cuda", "fp32", 1))
        measured = len(products)
        assert measure_peak_flops(Device("cuda", "fp32", 1)) == first
    assert len(products) == measured > 0, "the members of an ensemble share one measurement"
    assert first is not None
    assert first > 0
    assert len(products[0].unique()) > 1000, "equal numbers draw less power"
    assert torch.equal(torch.get_rng_state(), before)
    assert simulated_gpu[-1] == "empty_cache"


def test_without_room_for_the_product_there_is_no_peak(
    simulated_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "randn", full)
    assert measure_peak_flops(Device("cuda", "fp32", 1)) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_few_compilers_run_at_a_time_on_any_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool of a node of 32 cores held more than many a run."""
    from torch._inductor import config as inductor

    import core

    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    monkeypatch.setenv("TORCH_WARM_POOL", "unset")
    monkeypatch.delenv("TORCH_WARM_POOL")
    with inductor.patch(compile_threads=32):
        core._compile(
            build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 50, 8), Device(kind, "fp32", 1)
        )
        assert inductor.compile_threads == 2
    assert os.environ.get("TORCH_WARM_POOL") == ("0" if kind == "cpu" else None), (
        "a CPU has no use for Triton"
    )


def test_a_micro_batch_without_labels_that_count_is_no_loss() -> None:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 50, 8)
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    whole, empty = (masked(batch) for batch in batches(4, 8))
    empty["labels"] = torch.full_like(empty["labels"], -100)
    with torch.no_grad():
        alone = torch.nn.functional.cross_entropy(
            model(whole["input_ids"]).flatten(0, 1), whole["labels"].flatten()
        )
    step = Step(model, optimizer, CPU, accumulation=2, loss_chunk=256, grad_clip=None)
    result = step.take(iter([empty, whole]), 0.01)
    assert result.loss.item() == pytest.approx(alone.item(), rel=1e-5)


@pytest.mark.parametrize("reader", ["mmap", "pread"])
def test_what_is_held_out_is_read_as_the_run_reads(reader: str, tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    dataset = dataclasses.replace(config.dataset, reader=reader, shift=3, test_fraction=0.1)
    config = dataclasses.replace(config, dataset=dataset)
    data = prepare_data(dataset, config.tokenizer, tokenize=True, log=print)
    for split in ("val", "test"):
        found = open_held_out(data, split, config.dataset, config.training.seq_len)
        assert f"({reader}:" in found.reader
        assert len(found) == data.windows(split, config.training.seq_len, shift=3)
        batch = found.__getitems__([0, 1])
        assert torch.equal(batch["labels"][0, :-3], batch["input_ids"][0, 3:])


def test_evaluation_counts_the_labels_that_count(val_set: StreamingDataset) -> None:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 257, 16)
    starts = np.arange(0, val_set.data.val.n_tokens, 37, dtype=np.uint64)
    whole = dataclasses.replace(val_set.data.val, documents=starts)
    data = dataclasses.replace(val_set.data, train=whole, val=whole)
    documents = StreamingDataset(data, "val", 16, order="sequential", documents="masked")
    batch = documents.__getitems__(range(len(documents)))
    found = evaluate(model, documents, windows=len(documents), batch_size=7, loss_chunk=256, device=CPU)
    assert found.tokens == int((batch["labels"] != -100).sum()) < len(documents) * 16
    with torch.no_grad():
        logits = torch.nn.functional.linear(
            model.hidden(batch["input_ids"], batch["position_ids"]), model.output_weight
        )
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item()
    assert found.loss == pytest.approx(expected, rel=1e-5)


def test_documents_in_one_row_are_learned_as_if_each_stood_alone(val_set: StreamingDataset) -> None:
    """The loss over packed rows is that over the documents, one by one: all labels, no other's tokens."""
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=2, n_heads=1), Arch(), 257, 32)
    (val,), tokens = val_set.data.val_ranges, val_set.data.val.tokens
    starts = np.array([0, *range(val.start + 5, val.stop, 23), val.stop - 1], np.uint64)
    whole = dataclasses.replace(val_set.data.val, documents=starts)
    data = dataclasses.replace(val_set.data, train=whole, val=whole)
    rows = StreamingDataset(data, "val", 32, order="sequential", documents="separate")
    found = evaluate(model, rows, windows=len(rows), batch_size=7, loss_chunk=256, device=CPU)
    total, labels = 0.0, 0
    with torch.no_grad():
        for start, stop in itertools.pairwise([val.start, *starts[1:].tolist(), val.stop]):
            ids = torch.from_numpy(np.asarray(tokens[start:stop]).astype(np.int64))
            if len(ids) < 2:
                continue
            logits = model.hidden(ids[None, :-1])[0] @ model.output_weight.T
            total += torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum").item()
            labels += len(ids) - 1
    assert found.tokens == labels
    assert found.loss == pytest.approx(total / labels, rel=1e-5)
