"""Checks of the product's step in one process: speed, loss, every architecture, ensembles.

Each takes a report and whether to use tiny sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from benchmarks.gpu import product
from benchmarks.gpu.measure import DEVICE, ON_GPU, Call, Report, clean, kernels, peak_mib, sync, syncs, timed
from benchmarks.gpu.plain_loop import Loop
from benchmarks.gpu.product import Step
from models import device_loss

VOCAB = 50_257

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "learned": {"positions": "learned"},
    "alibi": {"positions": "alibi"},
    "window": {"window": 16},
    "softcap": {"attention_softcap": 30.0},
    "mqa": {"n_kv_heads": 1},
    "qk_norm": {"qk_norm": True},
    "parallel": {"parallel_blocks": True},
    "dropout": {"dropout_residual": 0.1, "dropout_embedding": 0.1},
    "dropout_attention": {"dropout_attention": 0.1},
    "moe": {"n_experts": 4},
    "head": {"tied_head": False, "head_bias": True, "logit_softcap": 30.0, "z_loss": 1e-4},
    "gpt2": {"norm": "layer", "positions": "learned", "activation": "gelu", "bias": "all"},
    "lstm": {"family": "lstm", "bias": "linear"},
    "mingru": {"family": "mingru"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"arch": changes} for name, changes in ARCHITECTURES.items()},
    "documents": {"has_documents": True},
    "accumulation": {"accumulation": 2},
    "fp32": {"precision": "fp32"},
    "fp16": {"precision": "fp16"},
    **{
        f"optimizer {name}": {"optimizer": name}
        for name in ("adam", "sgd", "rmsprop", "adagrad", "lion", "muon", "adafactor", "schedule_free")
    },
}


def whole(model: Any) -> None:
    model.states = torch.compile(model.states)


def by_block(model: Any) -> None:
    for block in model.blocks:
        block.compile()


def speed(report: Report, quick: bool, *shape: int) -> None:
    """The product's step next to a plain loop of the same shape, eager and as one CUDA graph."""
    d_model, vocab, batch, seq = shape
    eager = Step(*shape)
    layers, heads = eager.shape
    report |= {"tokens": batch * seq, "flops": eager.flops, "layers": layers, "loss_chunk": eager.chunk}
    with report.part("memory_mib") as found:
        found["estimate"] = eager.estimate_mib()
        found["peak"] = peak_mib(lambda: [eager.step() for _ in range(3)])
    calls = _ready(
        report,
        {
            "product": lambda: Step(*shape, is_graphed=ON_GPU).step,  # as a run takes it
            "product, eager": lambda: eager.step,
            "plain loop": lambda: Loop(vocab, d_model, layers, heads, batch, seq, DEVICE, "eager").step,
            "plain loop, one CUDA graph": lambda: (
                Loop(vocab, d_model, layers, heads, batch, seq, DEVICE, "graph").step
            ),
        },
    )
    with report.part("ms") as found:
        found |= timed(calls, quick)
    with report.part("syncs") as found:
        found["product"] = syncs(calls["product"])
    for name in ("product", "product, eager", "plain loop"):
        with report.part(f"kernels of {name}") as found:
            trace = str(Path(report.path).with_suffix(".trace.json.gz")) if name == "product" else None
            found |= kernels(calls[name], trace=trace)


def compiled(report: Report, quick: bool, *shape: int) -> None:
    """The product's step next to compiled ones: a plain loop, the product's model whole and by block."""
    d_model, vocab, batch, seq = shape
    ours = Step(*shape, is_graphed=ON_GPU)
    layers, heads = ours.shape
    ways: dict[str, Callable[[], Call]] = {
        "plain loop, compiled": lambda: (
            Loop(vocab, d_model, layers, heads, batch, seq, DEVICE, "compile").step
        ),
        "product, compiled by block": lambda: Step(*shape, compiled=by_block).step,
        "product, compiled": lambda: Step(*shape, compiled=whole).step,
    }
    calls: dict[str, Call] = {"product": ours.step}
    for name, make in ways.items():  # each can take minutes
        calls |= _ready(report, {name: make})
        with report.part("ms") as found:
            found |= timed(calls, quick)


def _ready(report: Report, ways: dict[str, Callable[[], Call]]) -> dict[str, Call]:
    """The calls that can take a step here, after their first one; why others cannot is in the report."""
    calls = {}
    for name, make in ways.items():
        if "CUDA graph" in name and not ON_GPU:
            continue
        with report.part(f"first step of {name}") as found:
            started = time.perf_counter()
            call = make()
            call()
            sync()
            found["seconds"] = round(time.perf_counter() - started, 1)
            calls[name] = call
    return calls


def without_triton(function: Callable[[], Any]) -> Any:
    """The result of a function that computes the loss with torch's operations."""
    with mock.patch.object(device_loss, "has_triton", return_value=False):
        return function()


def loss(report: Report, quick: bool) -> None:
    """The loss, forward and backward: the product's by chunk, torch's own, plain and compiled."""
    vocab = 2000 if quick else VOCAB
    for d_model, tokens in ((32, 256),) if quick else ((32, 4096), (64, 16_384), (512, 16_384)):
        generator = torch.Generator().manual_seed(d_model)
        hidden = torch.randn(tokens, d_model, generator=generator).to(DEVICE).requires_grad_()
        weight = (0.05 * torch.randn(vocab, d_model, generator=generator)).to(DEVICE).requires_grad_()
        labels = torch.randint(vocab, (tokens,), generator=generator).to(DEVICE)

        def plain(labels: Any = labels, hidden: Any = hidden, weight: Any = weight) -> Any:
            return F.cross_entropy(F.linear(hidden, weight).float(), labels)

        def chunked(chunk: int, labels: Any = labels, hidden: Any = hidden, weight: Any = weight) -> Any:
            return product.lm_loss(hidden, weight, labels, chunk)

        auto = product.loss_chunk(vocab)
        chunks = {auto, *((64,) if quick else (256, 1024, 4096, 8192)), tokens}
        ways: dict[str, Callable[[], Any]] = {
            f"product, chunk {chunk}{' (auto)' if chunk == auto else ''}": lambda chunk=chunk: chunked(chunk)
            for chunk in sorted(chunks)
        }
        ways["plain"] = plain
        if ON_GPU:
            ways["product, without Triton"] = lambda chunked=chunked, auto=auto: without_triton(
                lambda: chunked(auto)
            )
            ways["plain, compiled"] = torch.compile(plain)
        if hasattr(F, "linear_cross_entropy"):
            ways["torch's linear_cross_entropy"] = lambda h=hidden, w=weight, labels=labels: (
                F.linear_cross_entropy(h.bfloat16(), w.bfloat16(), labels)
            )

        def step(way: Callable[[], Any], hidden: Any = hidden, weight: Any = weight) -> Any:
            hidden.grad = weight.grad = None
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                value = way()
            value.backward()
            return value

        calls: dict[str, Call] = {}
        for name, way in ways.items():
            with report.part(f"{d_model}d, {tokens} tokens: {name}") as found:
                found["loss"] = step(way).item()
                found["gradient_norms"] = [float(one.grad.norm()) for one in (hidden, weight)]
                found["peak_mib"] = peak_mib(lambda way=way: step(way))
                if name.endswith("(auto)"):
                    found["kernels"] = kernels(lambda way=way: step(way)).get("kernels")
                calls[name] = lambda way=way: step(way)
        for name, times in timed(calls, quick, seconds=0.2).items():
            report[f"{d_model}d, {tokens} tokens: {name}"] |= times
        report.save()


def architectures(report: Report, quick: bool, is_deterministic: bool) -> None:
    """Each architecture, precision and optimizer against a CPU in fp32; if deterministic, bit by bit."""
    shape = (32, 300, 2, 24) if quick else (64, 1000, 8, 32)
    chunk = 16 if quick else 64  # several in a step
    torch.set_num_threads(2)  # small products: threads of all cores wait for each other next to other checks

    def three(device: str, **options: Any) -> tuple[Step, list[tuple[float, float]]]:
        step = Step(*shape, chunk=chunk, device=device, **options)
        results = [step.step() for _ in range(3)]
        return step, [(float(result.loss), float(result.grad_norm)) for result in results]

    for name, options in VARIANTS.items():
        with report.part(name) as found:
            Step(*shape, is_deterministic=is_deterministic).device.take()
            step, ours = three(DEVICE, is_deterministic=is_deterministic, **options)
            if "dropout" not in name:
                exact = three("cpu", **{**options, "precision": "fp32"})[1]
                found["loss_error"] = max(abs(a[0] - b[0]) for a, b in zip(ours, exact, strict=True))
                found["norm_error"] = max(abs(a[1] / b[1] - 1) for a, b in zip(ours, exact, strict=True))
                found["is_right"] = found["loss_error"] <= 0.05 and found["norm_error"] <= 0.1
            if is_deterministic and "dropout" not in name:
                again = three(DEVICE, is_deterministic=True, **options)[0]
                pairs = zip(step.model.state_dict().values(), again.model.state_dict().values(), strict=True)
                found["is_right"] = found["has_same_bits"] = all(torch.equal(a, b) for a, b in pairs)
            if not is_deterministic:
                found["syncs"] = syncs(step.step, 5)
                found |= timed({"step": step.step}, quick=True)["step"]
            if name == "lstm" and ON_GPU:
                found["dtype under bf16"] = product.lstm_dtype(step, torch.bfloat16)


def ensembles(report: Report, quick: bool) -> None:
    """Steps of several runs as one program against one run after another, as the product probes them."""
    cases = [(32, 257, 4, 32)] if quick else [(32, 257, 32, 128), (64, 257, 32, 128), (32, VOCAB, 32, 128)]
    for d_model, vocab, batch, seq in cases:
        with report.part(f"{d_model}d, {vocab} ids") as found:
            found |= product.ensemble_probe(4 if quick else 32, d_model, vocab, batch, seq)
        clean()
