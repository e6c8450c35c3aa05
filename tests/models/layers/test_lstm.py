"""The LSTM is torch's: outputs and gradients of torch.nn.LSTM from copied weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F

from conf.schema import Arch, Model
from models import LanguageModel, build_model
from models.layers.lstm import kernel_dtype

VOCAB, WIDTH = 61, 24
IDS = torch.randint(VOCAB, (3, 17), generator=torch.Generator().manual_seed(0))


def build(layers: int, **options: object) -> LanguageModel:
    arch = Arch(family="lstm", init="xavier", **options)  # type: ignore[arg-type]
    return build_model(
        Model(d_model=WIDTH, n_layers=layers), arch, VOCAB, 17, torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bias", ["none", "linear"])
def test_outputs_and_gradients_are_those_of_torchs_module(layers: int, bias: str) -> None:
    ours = build(layers, norm="none", lstm_residual=False, bias=bias)
    theirs = torch.nn.LSTM(WIDTH, WIDTH, layers, bias=bias == "linear", batch_first=True)
    pairs = []
    for number, block in enumerate(ours.blocks):
        for of_ours, name in [(block.lstm.input, "ih"), (block.lstm.hidden, "hh")]:
            pairs.append((of_ours.weight, getattr(theirs, f"weight_{name}_l{number}")))
            if bias == "linear":
                pairs.append((of_ours.bias, getattr(theirs, f"bias_{name}_l{number}")))
    assert len(pairs) == len(list(theirs.parameters()))
    with torch.no_grad():
        for of_ours, of_theirs in pairs:
            of_theirs.copy_(of_ours.add_(torch.randn_like(of_ours), alpha=0.1))
    embedded = ours.embedding(IDS).detach().requires_grad_()
    outputs, _ = theirs(embedded)
    hidden = ours.hidden(IDS)
    torch.testing.assert_close(hidden, outputs, rtol=1e-6, atol=1e-6)
    ours.logits(hidden).square().mean().backward()
    F.linear(outputs, ours.embedding.weight.detach()).square().mean().backward()
    for of_ours, of_theirs in pairs:
        torch.testing.assert_close(of_ours.grad, of_theirs.grad, rtol=1e-6, atol=1e-6)


def test_a_token_changes_what_is_behind_it_and_nothing_before() -> None:
    model, other = build(2, norm="layer", bias="linear"), IDS.clone()
    other[:, 9] = (other[:, 9] + 1) % VOCAB
    before, after = model.hidden(IDS), model.hidden(other)
    assert torch.equal(before[:, :9], after[:, :9])
    assert (before[:, 9:] != after[:, 9:]).any(-1).all()


def test_forget_gates_begin_open() -> None:
    lstm = build(1, bias="linear", lstm_forget_bias=2.0).blocks[0].lstm
    parts = lstm.input.bias.chunk(4)  # type: ignore[union-attr, operator]
    assert [part.unique().tolist() for part in parts] == [[0.0], [2.0], [0.0], [0.0]]
    assert not lstm.hidden.bias.any()  # type: ignore[union-attr, operator]


def test_a_residual_keeps_what_came_in() -> None:
    model = build(1, norm="none", bias="none")
    alone = build(1, norm="none", bias="none", lstm_residual=False)
    torch.testing.assert_close(model.hidden(IDS), model.embedding(IDS) + alone.hidden(IDS))


def test_on_a_cpu_the_recurrence_is_in_fp32_whatever_the_precision() -> None:
    model = build(2, norm="layer", bias="linear")
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(IDS)
    assert torch.equal(hidden, model.hidden(IDS))


@pytest.mark.parametrize(
    ("dtype", "cudnn", "computed_in"),
    [
        (torch.bfloat16, 91_300, torch.bfloat16),
        (torch.bfloat16, 91_002, torch.float32),
        (torch.bfloat16, None, torch.float32),
        (torch.float16, 91_002, torch.float16),
    ],
)
def test_on_a_gpu_the_recurrence_has_the_dtype_of_autocast_if_its_kernel_has(
    dtype: torch.dtype, cudnn: int | None, computed_in: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast of CUDA would compute it in fp16 whatever is asked for."""
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: cudnn)
    x = SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=torch.float32)
    assert kernel_dtype(cast(Any, x)) is torch.float32
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: dtype)
    assert kernel_dtype(cast(Any, x)) is computed_in


def test_the_kernel_gets_one_dtype_and_no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.layers.lstm.kernel_dtype", lambda x: torch.bfloat16)
    seen: list[Any] = []

    def kernel(x: torch.Tensor, states: Any, weights: Any, **_: Any) -> Any:
        seen.append(({tensor.dtype for tensor in (x, *states, *weights)}, torch.is_autocast_enabled("cpu")))
        return x, *states

    monkeypatch.setattr(torch, "lstm", kernel)
    with torch.autocast("cpu", torch.bfloat16):
        build(2, norm="layer", bias="linear").hidden(IDS)
    assert seen == [({torch.bfloat16}, False)] * 2
