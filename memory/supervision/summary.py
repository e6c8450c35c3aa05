"""The one line at the end of `python -m memory run`."""

from __future__ import annotations

import shlex
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.supervision.options import Options

NEAR = 0.9


def summary(outcome: dict[str, Any], options: Options) -> str | None:
    """How it ended, how near it came to its limit, what to type next. None: nothing that must be told."""
    nearness = outcome.get("peak_nearness")
    kills = _kills(outcome)
    is_well = outcome["exit_code"] == 0 and (nearness is None or nearness < NEAR) and not kills
    if is_well and options.tell != "always":
        return None
    seconds = outcome["ended_s"] - outcome["started_s"]
    how = f"killed by {outcome['signal']}" if outcome["signal"] else f"exit code {outcome['exit_code']}"
    peak, limit = outcome.get("peak_unreclaimable_bytes"), outcome.get("peak_limit_bytes")
    amount = "memory unknown"
    if peak is not None:
        whose = "the host's " if outcome.get("limit_at") == "host" else ""
        of = f" of {whose}{format_bytes(limit)} ({100 * peak / limit:.0f}%)" if limit else ""
        amount = f"peak {format_bytes(peak)}{of} unreclaimable"
    if kills:
        amount += f", the kernel killed {kills} process{'es' * (kills != 1)} of its cgroup for memory"
    return (
        f"[mem] {how} after {seconds:.1f} s, {amount}; next: {options.explain} {shlex.quote(options.output)}"
    )


def _kills(outcome: dict[str, Any]) -> int:
    """That the kernel counted while it ran: also of a child whose end the command took no notice of."""
    before, after = ((outcome.get(f"counters_{when}") or {}).get("oom_kill") for when in ("before", "after"))
    return max(0, after - before) if isinstance(before, int) and isinstance(after, int) else 0
