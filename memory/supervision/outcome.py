"""outcome.json: how a run ended, as its parent saw it, and the line printed at the end."""

from __future__ import annotations

import os
import shlex
import signal
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.record.earlier_attempts import LOGS
from memory.supervision.options import Options

VERSION = 1
_NEAR = 0.9
"""Share of the limit from which the end line is printed."""
_OF_THE_JOB = (
    "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_STEP_ID", "SLURM_PROCID",
    "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_RESTART_COUNT", "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_GPU",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_PARTITION", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME",
    "SLURM_CLUSTER_NAME", "SLURMD_NODENAME",
)  # fmt: skip


def beginning(options: Options, started_s: float) -> dict[str, Any]:
    """Facts that are known before the command has started."""
    return {
        "version": VERSION,
        "command": list(options.command),
        "pid": None,
        "supervisor_pid": os.getpid(),
        "host": os.uname().nodename,
        "attempt": options.attempt,
        "started_s": round(started_s, 3),
        "ended_s": None,
        "exit_code": None,
        "signal": None,
        "by": "lost",
        "signals_passed_on": [],
        "log_bytes_before": log_bytes(options.output),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "environment": {name: os.environ[name] for name in _OF_THE_JOB if name in os.environ},
    }


def log_bytes(folder: str) -> dict[str, int]:
    """Size of each log in the run's folder: its content so far is of an earlier attempt."""
    found = {}
    for name in LOGS:
        try:
            found[name] = os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue
    return found


def ending(status: int | None) -> dict[str, Any]:
    """exit_code, signal, by. status: of wait(2); None if it was lost."""
    if status is None:
        return {"exit_code": None, "signal": None, "by": "lost"}
    if os.WIFSIGNALED(status):
        return {"exit_code": None, "signal": signal_name(os.WTERMSIG(status)), "by": "signal"}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None, "by": "exit"}


def signal_name(number: int) -> str:
    """Name of a signal, such as `SIGKILL`; `signal 45` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def summary(outcome: dict[str, Any], options: Options) -> str | None:
    """Lines with how a run ended, its peak, and the next command; None if not wanted: all is well."""
    nearness = outcome.get("peak_nearness")
    kills = _kills(outcome)
    is_well = outcome["exit_code"] == 0 and (nearness is None or nearness < _NEAR) and not kills
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
        if outcome["signal"] == "SIGKILL" and (nearness or 0) < _NEAR:
            amount += " when last sampled"
    if kills:
        amount += f"\n[mem] the kernel killed {kills} process{'es' * (kills != 1)} of its cgroup for memory"
    next_ = f"{options.explain} {shlex.quote(options.output)}"
    return f"[mem] {how} after {seconds:.1f} s, {amount}\n[mem] next: {next_}"


def _kills(outcome: dict[str, Any]) -> int:
    """Kills that the kernel counted during the run, also of children whose end the command ignored."""
    before, after = ((outcome.get(f"counters_{when}") or {}).get("oom_kill") for when in ("before", "after"))
    return max(0, after - before) if isinstance(before, int) and isinstance(after, int) else 0
