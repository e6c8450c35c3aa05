"""Memory of a run of experiments.py with an override, by the estimate in its run.json."""

from __future__ import annotations

from typing import Any

from experiment_utils.json_values import mapping, unsigned
from memory.estimate.step_reduction import WORTH
from memory.explain.evidence.run_facts import RunFacts

_OF_A_STEP = ("activations", "backward pass", "logits and loss", "allocator", "batches")
"""Parts that a smaller step may make smaller."""


def _memory(facts: RunFacts) -> dict[str, Any]:
    return mapping(facts.evidence.run.get("memory"))


def estimated(facts: RunFacts, *, gpu: bool = False) -> int | None:
    """Bytes at its peak, without a change."""
    return unsigned(_memory(facts).get("gpu_bytes" if gpu else "host_bytes")) or None


def polled_bytes(facts: RunFacts) -> int | None:
    """Limit that the run's plan took from Slurm's poll of RSS; such a cluster limits no cgroup."""
    known = _memory(facts)
    return unsigned(known.get("limit_bytes")) if known.get("counts_rss") is True else None


def recommended(facts: RunFacts) -> int | None:
    """--mem that the plan recommended; None if the estimate fits the limit."""
    needed, limit = estimated(facts), polled_bytes(facts) or facts.limit_bytes
    if needed is None or not limit or needed <= limit:
        return None
    return unsigned(_memory(facts).get("recommended_mem_bytes"))


def helps(facts: RunFacts, override: str, *, gpu: bool = False) -> bool:
    """Whether it needs less with the override by a good part, and fits. True if nothing is known."""
    now, after = estimated(facts, gpu=gpu), _with(facts, override, gpu=gpu)
    if now is None or after is None:
        return True
    of_gpu = unsigned(_memory(facts).get("gpu_total_bytes"))
    limit = of_gpu if gpu else polled_bytes(facts) or facts.limit_bytes
    return after <= WORTH * now and (limit is None or after <= limit)


def combined(facts: RunFacts) -> str | None:
    """Several overrides that fit together."""
    return next((words for words in _savings(facts) if " " in words and helps(facts, words)), None)


def _savings(facts: RunFacts) -> dict[str, Any]:
    return mapping(_memory(facts).get("savings"))


def _with(facts: RunFacts, override: str, *, gpu: bool) -> int | None:
    """Bytes with the override; if the run did not note them, the least that it can come to."""
    name = "gpu" if gpu else "host"
    known, now = (
        unsigned(mapping(_savings(facts).get(override)).get(f"{name}_bytes")),
        estimated(facts, gpu=gpu),
    )
    if known is not None or now is None or _savings(facts) or not override.startswith("training."):
        return known
    parts = mapping(_memory(facts).get(f"{name}_parts"))
    return now - sum(unsigned(parts.get(part)) or 0 for part in _OF_A_STEP) if parts else None
