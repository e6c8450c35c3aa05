"""Options that training.precision=fp16, whose gradients are scaled, cannot be combined with."""

from __future__ import annotations

from conf.schema import Config, Training
from experiment_utils.errors import Problem


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
