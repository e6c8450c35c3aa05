"""What a run of ours would need with an override, by the estimate that it wrote down itself (run.json)."""

from __future__ import annotations

from experiment_utils.json_values import mapping, unsigned
from memory.explain.facts import Facts
from memory.smaller import WORTH

_OF_A_STEP = ("activations", "backward pass", "logits and loss", "allocator", "batches")
"""Parts that a smaller step may make smaller."""


def estimated(facts: Facts, *, gpu: bool = False) -> int | None:
    """Bytes at its peak, as it is."""
    return (
        unsigned(mapping(facts.evidence.run.get("memory")).get("gpu_bytes" if gpu else "host_bytes")) or None
    )


def polled_bytes(facts: Facts) -> int | None:
    """What the run's own plan counted against, where Slurm polls RSS: such a cluster limits no cgroup."""
    told = mapping(facts.evidence.run.get("memory"))
    return unsigned(told.get("limit_bytes")) if told.get("counts_rss") is True else None


def recommended(facts: Facts) -> int | None:
    """What to ask for, where it needs more than it may have; None where the estimate says that it fits."""
    told = mapping(facts.evidence.run.get("memory"))
    needed = estimated(facts)
    limit = polled_bytes(facts) or facts.limit_bytes
    if needed is None or not limit or needed <= limit:
        return None
    return unsigned(told.get("recommended_mem_bytes"))


def helps(facts: Facts, override: str, *, gpu: bool = False) -> bool:
    """Whether it needs less with it by a good part, and no more than it may have. True where nothing says."""
    now, after = estimated(facts, gpu=gpu), _with(facts, override, gpu=gpu)
    if now is None or after is None:
        return True
    limit = unsigned(mapping(facts.evidence.run.get("memory")).get("gpu_total_bytes"))
    limit = limit if gpu else polled_bytes(facts) or facts.limit_bytes
    return after <= WORTH * now and (limit is None or after <= limit)


def combined(facts: Facts) -> str | None:
    """Several overrides that fit together, where it does not fit as it is."""
    fitting = [words for words in _savings(facts) if " " in words and helps(facts, words)]
    return fitting[0] if fitting else None


def _savings(facts: Facts) -> dict[str, object]:
    return mapping(mapping(facts.evidence.run.get("memory")).get("savings"))


def _with(facts: Facts, override: str, *, gpu: bool) -> int | None:
    """Bytes with the override; where a run did not note them, the least that it can come to."""
    name = "gpu" if gpu else "host"
    told = unsigned(mapping(_savings(facts).get(override)).get(f"{name}_bytes"))
    now = estimated(facts, gpu=gpu)
    if told is not None or now is None or _savings(facts) or not override.startswith("training."):
        return told
    parts = mapping(mapping(facts.evidence.run.get("memory")).get(f"{name}_parts"))
    return now - sum(unsigned(parts.get(part)) or 0 for part in _OF_A_STEP) if parts else None
