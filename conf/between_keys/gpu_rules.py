"""Settings that a CUDA graph of the training step, or fp16 with scaled gradients, does not go with."""

from __future__ import annotations

from conf.schema import AUTO, Config, Training
from experiment_utils.errors import Problem

GRAPHED_OPTIMIZERS = ("adamw", "adam")
"""Optimizers that are one fused kernel with the learning rate on the device."""


def graph_obstacle(config: Config) -> str | None:
    """Return the first setting that a CUDA graph of the step does not go with, as `key=value: why`."""
    arch, training, optimizer = config.arch, config.training, config.optimizer
    dropout = max(
        arch.dropout_embedding, arch.dropout_attention, arch.dropout_residual, arch.dropout_recurrent
    )
    obstacles: list[tuple[str, object, bool, str]] = [
        ("training.device", training.device, training.device == "cpu", "a CPU has no graphs"),
        ("training.precision", training.precision, training.precision == "fp16", "its loss scale changes"),
        ("training.compile", "true", training.compile, "the compiled step has other kernels"),
        ("training.profile", training.profile, training.profile is not None, "a graph hides operations"),
        (
            "training.activation_checkpointing",
            str(training.activation_checkpointing).lower(),
            bool(training.activation_checkpointing),
            "the host keeps random states",
        ),
        (
            "own",
            ", ".join(config.own) or "parts",
            bool(config.plugins),
            "parts of one's own are not captured",
        ),
        ("training.on_spike", training.on_spike, training.on_spike != "none", "the host reads each loss"),
        (
            "optimizer.name",
            optimizer.name,
            optimizer.name not in GRAPHED_OPTIMIZERS,
            f"only {' and '.join(GRAPHED_OPTIMIZERS)} are one kernel with lr on the device",
        ),
        (
            "optimizer.grad_noise",
            optimizer.grad_noise,
            optimizer.grad_noise > 0,
            "each step has its own seed",
        ),
        ("arch.dropout_*", dropout, dropout > 0, "each step has its own seed"),
        (
            "arch.n_experts",
            arch.n_experts,
            arch.n_experts is not None,
            "on most GPUs the host counts tokens by expert",
        ),
        ("arch.state_reset", arch.state_reset, arch.state_reset is not None, "rows have states"),
        (
            "dataset.documents",
            config.dataset.documents,
            config.dataset.documents != "across",
            "the host counts the labels of a step",
        ),
    ]
    return next((f"{key}={value}: {why}" for key, value, is_there, why in obstacles if is_there), None)


def graph_that_can_be(config: Config) -> list[Problem]:
    """Refuse training.cuda_graph=true with a setting that it does not go with."""
    obstacle = graph_obstacle(config) if config.training.cuda_graph is True else None
    return [] if obstacle is None else [refused_graph(obstacle)]


def refused_graph(obstacle: str) -> Problem:
    """Return the problem of a graph that was asked for and cannot be."""
    return Problem("training.cuda_graph", f"true does not go with {obstacle}. Use {AUTO} or false")


def fp16_obstacle(training: Training, *, is_ensemble: bool, kind: str) -> str | None:
    """Return why gradients of a run cannot be in fp16, and what to use.

    Args:
        kind: of the device; `auto`: not known yet.
    """
    if kind == "cpu":
        return "a CPU, which has no fast fp16. Use fp32, or bf16"
    if training.parallel == "fsdp":
        return "training.parallel=fsdp, whose ranks would scale differently. Use ddp, or fp32"
    if training.on_spike != "none":
        return f"training.on_spike={training.on_spike}: fp16 skips steps on its own. Use none, or fp32"
    if is_ensemble:
        return "an ensemble, whose runs have one loss. Use fp32, or sweep with -m"
    return None


def fp16_that_can_be(config: Config) -> list[Problem]:
    """Refuse training.precision=fp16 with a setting that it does not go with."""
    if config.training.precision != "fp16":
        return []
    obstacle = fp16_obstacle(config.training, is_ensemble=False, kind=config.training.device)
    return [] if obstacle is None else [Problem("training.precision", f"fp16 does not go with {obstacle}")]
