"""Checks of the product's step in one process: speed, every architecture.

Each takes a report and whether to use tiny sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.measure import DEVICE, ON_GPU, Call, Report, sync, syncs, timed
from benchmarks.gpu.plain_loop import Loop
from benchmarks.gpu.product import Step

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


def loop(kind: str, shape: tuple[int, ...], layers_heads: tuple[int, int]) -> Call:
    """The step of a plain loop of the same shape."""
    d_model, vocab, batch, seq = shape
    return Loop(vocab, d_model, *layers_heads, batch, seq, DEVICE, kind).step


def speed(report: Report, quick: bool, *shape: int) -> None:
    """The product's step next to a plain loop of the same shape, eager and as one CUDA graph."""
    eager = Step(*shape)
    report |= {"tokens": shape[2] * shape[3], "layers": eager.shape[0], "loss_chunk": eager.chunk}
    ways: dict[str, Callable[[], Call]] = {
        "product": lambda: Step(*shape, is_graphed=ON_GPU).step,  # as a run takes it
        "product, eager": lambda: eager.step,
        "plain loop": lambda: loop("eager", shape, eager.shape),
    }
    if ON_GPU:
        ways["plain loop, one CUDA graph"] = lambda: loop("graph", shape, eager.shape)
    calls = _ready(report, ways)
    with report.part("ms") as found:
        found |= timed(calls, quick)
    with report.part("syncs") as found:
        found["product"] = syncs(calls["product"])


def compiled(report: Report, quick: bool, *shape: int) -> None:
    """The product's step next to a compiled plain loop."""
    ours = Step(*shape, is_graphed=ON_GPU)
    calls = _ready(report, {"plain loop, compiled": lambda: loop("compile", shape, ours.shape)})
    with report.part("ms") as found:
        found |= timed(calls | {"product": ours.step}, quick)


def _ready(report: Report, ways: dict[str, Callable[[], Call]]) -> dict[str, Call]:
    """The calls that can take a step here, after their first one; why others cannot is in the report."""
    calls = {}
    for name, make in ways.items():
        with report.part(f"first step of {name}") as found:
            started = time.perf_counter()
            call = make()
            call()
            sync()
            found["seconds"] = round(time.perf_counter() - started, 1)
            calls[name] = call
    return calls


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
