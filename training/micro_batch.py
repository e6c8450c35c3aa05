"""`micro_batch=auto` over the attempts of a run: pinned, and made smaller after one that died for memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiment_utils
from conf import AUTO

if TYPE_CHECKING:
    from training.plan import Plan

log = logging.getLogger("training")

OUTCOMES = ("outcome.json", "outcome.previous.json")
"""What a supervisor wrote of the attempt before; that of the attempt which runs may have moved it aside."""

_OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError", "can't allocate memory", "out of memory")
"""In the reason of an attempt that failed by itself: of CUDA, of Python, of torch's CPU allocator."""


def died_for_memory(folder: Path, run: Mapping[str, Any]) -> bool:
    """Whether the last attempt of a run ended because memory ran out, on what it and its parent wrote.

    run: run.json. What the supervisor wrote of an earlier attempt does not count.
    """
    attempts = run.get("attempts") or []
    if not attempts:
        return False
    status = experiment_utils.read_status(folder)
    if status.get("state") == "oom":
        return True
    if status.get("state") == "failed" and any(word in str(status.get("reason")) for word in _OUT_OF_MEMORY):
        return True
    return any(_was_killed(folder / name, attempts[-1].get("attempt")) for name in OUTCOMES)


def _was_killed(path: Path, attempt: Any) -> bool:
    try:
        outcome = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(outcome, dict) or outcome.get("attempt") != attempt:
        return False
    return outcome.get("signal") in ("SIGKILL", "SIGBUS") and _kills(outcome) > 0


def _kills(outcome: Mapping[str, Any]) -> int:
    """How many more the kernel killed for memory, in the cgroup or in one above it, while the run lived."""
    before, after = outcome.get("counters_before") or {}, outcome.get("counters_after") or {}
    counted = [(before.get("oom_kill"), after.get("oom_kill"))]
    for parent in outcome.get("parents") or ():
        counted.append((parent.get("oom_kill_before"), parent.get("oom_kill_after")))
    return max((b - a for a, b in counted if isinstance(a, int) and isinstance(b, int)), default=0)


def tell_micro_batch(plan: Plan, kept: Mapping[str, Any], *, after_oom: bool) -> None:
    """Say where `auto` was settled anew, or cannot be."""
    before, now = kept.get("micro_batch"), plan.budget.micro_batch
    if plan.config.training.micro_batch != AUTO:
        if after_oom and plan.config.training.micro_batch == before:
            log.warning(
                "the attempt before died for memory with the same training.micro_batch=%s; with "
                "training.micro_batch=auto it would be made smaller",
                now,
            )
        return
    if before is None or (now == before and not after_oom):
        return
    why = "the attempt before died for memory" if after_oom else "this machine has less memory"
    if now < before:
        log.warning(
            "%s: micro-batch %s in place of %s; losses may differ in their last bits", why, now, before
        )
    else:
        log.warning(
            "%s, and the micro-batch is %s already: try training.activation_checkpointing=true", why, now
        )
