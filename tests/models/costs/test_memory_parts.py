"""The formula of what training holds, against what torch saves and allocates for the very model."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conf.schema import Arch, Model
from memory.estimate.estimate import STEP, Estimate
from models import LossModel, build_model, lm_loss
from models.costs import memory_loss
from models.costs.memory_loss import evaluation_loss_bytes, loss_peak_bytes
from models.costs.memory_parts import ALLOCATOR, StepSizes, model_parts, saved_bytes
from models.costs.memory_saved import mask_bytes
from models.loss import device_loss
from models.options.shape import resolve_shape, shape_problems
from models.transformer import LanguageModel
from tests.searched import examples

ARCHS = {
    "default": Arch(),
    "gpt2": Arch(norm="layer", activation="gelu", positions="learned"),
    "vaswani": Arch(norm="layer", norm_position="post", activation="relu", positions="sinusoidal"),
    "untied": Arch(tied_head=False, activation="silu", ffn_multiplier=3.0),
}
OPTIONS = {
    "no norm": Arch(norm="none"),
    "sandwich": Arch(norm_position="sandwich"),
    "sandwich of layer": Arch(norm_position="sandwich", norm="layer", bias="all"),
    "parallel": Arch(parallel_blocks=True),
    "qk": Arch(qk_norm=True),
    "qk, not rotated": Arch(qk_norm=True, positions="none"),
    "alibi": Arch(positions="alibi"),
    "grouped": Arch(n_kv_heads=2),
    "one for all": Arch(n_kv_heads=1, positions="learned"),
    "window": Arch(window=16),
    "a part rotated": Arch(rope_fraction=0.5),
    "replaced system": Arch(final_norm="layer", bias="all", head_bias=True),
    "geglu": Arch(activation="geglu"),
    "relu2": Arch(activation="relu2"),
    "gelu_exact": Arch(activation="gelu_exact"),
    "dropout": Arch(dropout_embedding=0.1, dropout_residual=0.1),
    "dropout of attention": Arch(dropout_attention=0.1),
    "scores capped": Arch(attention_softcap=20.0),
    "scores capped, norms": Arch(attention_softcap=20.0, qk_norm=True, n_kv_heads=2),
    "scores capped, alibi": Arch(attention_softcap=20.0, positions="alibi"),
    "scores capped, window": Arch(attention_softcap=20.0, positions="learned", window=16),
    "scores capped, dropout": Arch(attention_softcap=20.0, dropout_attention=0.1),
    "dropout, alibi": Arch(dropout_attention=0.1, positions="alibi"),
    "dropout, grouped": Arch(dropout_attention=0.1, n_kv_heads=2),
    "experts": Arch(n_experts=4),
    "experts of gelu": Arch(n_experts=4, activation="gelu", experts_per_token=1),
    "softcap": Arch(logit_softcap=10.0),
    "z-loss": Arch(z_loss=1e-4),
    "all in the head": Arch(logit_softcap=10.0, z_loss=1e-3, head_bias=True),
    "lstm": Arch(family="lstm", norm="layer", bias="linear"),
    "lstm as torch's": Arch(family="lstm", norm="none", lstm_residual=False),
    "lstm, no norm": Arch(family="lstm", norm="none"),
    "lstm, norms behind": Arch(family="lstm", norm="layer", norm_position="post", lstm_residual=False),
    "lstm, dropout": Arch(
        family="lstm",
        dropout_embedding=0.1,
        dropout_residual=0.1,
        dropout_recurrent=0.1,
        norm_position="post",
    ),
    "lstm, locked": Arch(family="lstm", dropout_embedding=0.1, dropout_residual=0.1, dropout_locked=True),
    "mingru": Arch(family="mingru"),
    "mingru, all": Arch(family="mingru", norm="layer", bias="all", activation="gelu", dropout_residual=0.1),
    "mingru, locked": Arch(family="mingru", dropout_residual=0.1, dropout_locked=True),
    "completep": Arch(init="completep", base_width=32),
}
ARCHS |= OPTIONS

STEPS = {
    "fp32": StepSizes(4, 64, "fp32", 64),
    "whole": StepSizes(4, 64, "fp32", 10_000),
    "bf16": StepSizes(4, 64, "bf16", 64),
    "bf16 whole": StepSizes(4, 64, "bf16", 10_000),
    "checkpointed": StepSizes(4, 64, "fp32", 64, activation_checkpointing=True),
    "partly checkpointed": StepSizes(4, 64, "fp32", 64, activation_checkpointing=2),
    "masked": StepSizes(4, 64, "fp32", 64, masks_documents=True),
    "accumulated": StepSizes(4, 64, "fp32", 64, accumulates=True),
}


def steps_of(number: int, name: str) -> list[str]:
    """Of an option of the table the plain step, and two others in turn."""
    if name not in OPTIONS:
        return list(STEPS)
    others = [one for one in STEPS if one != "fp32"]
    return ["fp32", others[number % len(others)], others[(number + 3) % len(others)]]


each_case = pytest.mark.parametrize(
    ("arch", "step"),
    [
        pytest.param(
            arch,
            STEPS[step_name],
            id=f"{step_name}-{name}",
            marks=[pytest.mark.slow] if name in OPTIONS and step_name != "fp32" else [],
        )
        for number, (name, arch) in enumerate(ARCHS.items())
        for step_name in steps_of(number, name)
    ],
)
VOCAB, SIZE = 1000, Model(d_model=64, n_layers=3, n_heads=4)


class Live(TorchDispatchMode):
    """Bytes of all tensors that live, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        name, size = storage._cdata, storage.nbytes()
        if name not in self._seen:
            self._seen[name] = size
            self.now += size
            weakref.finalize(storage, self._drop, name)
        self.peak = max(self.peak, self.now)

    def _drop(self, name: int) -> None:
        self.now -= self._seen.pop(name, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


def built(arch: Arch, step: StepSizes) -> LanguageModel:
    model = build_model(SIZE, arch, VOCAB, step.seq_len, torch.Generator().manual_seed(0))
    model.activation_checkpointing = step.activation_checkpointing
    return model


def tensors(model: Model, arch: Arch, step: StepSizes, positions: int) -> Estimate:
    """The estimate of a model without the holes that its tensors leave."""
    parts = model_parts(model, arch, VOCAB, positions, step)
    return Estimate.of(part for part in parts if part.name != ALLOCATOR)


def batch_of(step: StepSizes) -> tuple[torch.Tensor, torch.Tensor | None]:
    # Many different ids, so that experts get about as many tokens each.
    ids = torch.arange(step.tokens).mul(37).remainder(VOCAB).view(step.micro_batch, step.seq_len)
    positions = (torch.arange(step.seq_len) % 20).expand(step.micro_batch, -1).contiguous()
    return ids, positions if step.masks_documents else None


@each_case
def test_what_autograd_saves(arch: Arch, step: StepSizes) -> None:
    model = built(arch, step)
    ids, positions = batch_of(step)
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=step.precision == "bf16"),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        hidden = model.hidden(ids, positions)
    found = sum(t.untyped_storage().nbytes() for name, t in saved.items() if name not in own)
    assert hidden.requires_grad
    told = saved_bytes(SIZE, arch, step)
    kernel_saves_mask = (
        arch.positions == "alibi" and not arch.dropout_attention and not arch.attention_softcap
    )
    is_partly = step.activation_checkpointing is not True and kernel_saves_mask
    if step.activation_checkpointing and not is_partly:  # a mask that checkpointing holds is no saved tensor
        told -= mask_bytes(resolve_shape(SIZE, arch), arch, step)
    # The ids of the embedding are an input.
    assert told == pytest.approx(found, rel=0.02)


@each_case
def test_the_peak_of_a_step(arch: Arch, step: StepSizes) -> None:
    with Live() as live:
        model = built(arch, step)
        for tensor in (*model.parameters(), *model.buffers()):
            live.add(tensor)
        for _ in range(2 if step.accumulates else 1):
            live.peak = live.now
            ids, positions = batch_of(step)
            with torch.autocast("cpu", torch.bfloat16, enabled=step.precision == "bf16"):
                loss = LossModel(model)(ids, ids, positions, step.loss_chunk)
            loss.backward()
            del loss
    estimate = tensors(SIZE, arch, step, step.seq_len)
    inside = 0
    if step.precision == "bf16" and step.loss_chunk == 64:
        inside = 4 * VOCAB * (step.loss_chunk + SIZE.d_model)  # and inside a product of 16 bits
    told = max(estimate.host_at(phase) - (inside if phase == "loss" else 0) for phase in STEP)
    assert told == pytest.approx(live.peak, rel=0.06)
    assert told > 0.95 * live.peak


@settings(max_examples=examples(60))
@given(
    width=st.sampled_from([16, 64, 256]),
    layers=st.integers(1, 20),
    batch=st.integers(1, 64),
    seq_len=st.sampled_from([16, 128, 1024]),
    arch=st.sampled_from(list(ARCHS.values())),
    precision=st.sampled_from(["fp32", "bf16"]),
    checkpointing=st.sampled_from([False, True, 1, 3]),
)
def test_more_of_anything_needs_no_less(
    width: int, layers: int, batch: int, seq_len: int, arch: Arch, precision: str, checkpointing: bool | int
) -> None:
    model = Model(d_model=width, n_layers=layers, n_heads=width // 16)
    assume(not shape_problems(model, arch))  # one head cannot share two of keys and values
    step = StepSizes(batch, seq_len, precision, 256, activation_checkpointing=checkpointing)

    def peak(model: Model, step: StepSizes) -> int:
        return tensors(model, arch, step, 1024).host_bytes

    least = peak(model, step)
    assert least > 0
    assert peak(model, dataclasses.replace(step, micro_batch=batch + 1)) >= least
    assert peak(model, dataclasses.replace(step, seq_len=2 * seq_len)) >= least
    assert peak(dataclasses.replace(model, n_layers=layers + 1), step) >= least
    assert peak(model, dataclasses.replace(step, accumulates=True)) >= least


def test_parameters_are_exact() -> None:
    for arch in ARCHS.values():
        model = built(arch, STEPS["fp32"])
        real = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
        parts = model_parts(SIZE, arch, VOCAB, 64, STEPS["fp32"])
        assert sum(part.host_bytes for part in parts if part.name == "parameters") == real


def test_on_a_gpu_nothing_of_it_lies_on_the_host() -> None:
    on_gpu = dataclasses.replace(STEPS["bf16"], on_gpu=True)
    assert all(part.host_bytes == 0 for part in model_parts(SIZE, Arch(), VOCAB, 64, on_gpu))


@pytest.mark.parametrize("chunk", [64, 10_000])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("has_triton", [False, True])
@pytest.mark.parametrize("head", ["", "softcap", "bias"])
def test_peak_of_the_loss_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, head: str, has_triton: bool, precision: str, chunk: int
) -> None:
    monkeypatch.setattr(memory_loss, "has_triton", lambda: has_triton)
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False))
    if has_triton:  # a kernel without memory of its own
        monkeypatch.setattr(device_loss, "cross_entropy_", lambda rows, *_, **__: torch.zeros(len(rows)))
    step = StepSizes(4, 64, precision, chunk, on_gpu=True)
    arch = Arch(logit_softcap=10.0 if head == "softcap" else None, head_bias=head == "bias")
    shape = resolve_shape(SIZE, arch)
    peaks = {}
    for with_gradients in (True, False):
        hidden, weight = torch.randn(step.tokens, SIZE.d_model), torch.randn(VOCAB, SIZE.d_model)
        bias = torch.randn(VOCAB).requires_grad_(with_gradients) if head == "bias" else None
        hidden.requires_grad_(with_gradients)
        weight.requires_grad_(with_gradients)
        labels = torch.zeros(step.tokens, dtype=torch.int64)
        with Live() as live, torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            for tensor in (hidden, weight, labels):
                live.add(tensor)
            before = live.now
            loss = lm_loss(hidden, weight, labels, chunk, bias=bias, softcap=arch.logit_softcap)
        peaks[with_gradients] = live.peak - before
        del loss
    assert 0.94 * peaks[True] < loss_peak_bytes(shape, arch, VOCAB, step) < 1.15 * peaks[True]
    assert 0.94 * peaks[False] < evaluation_loss_bytes(shape, arch, VOCAB, step) < 1.15 * peaks[False]
