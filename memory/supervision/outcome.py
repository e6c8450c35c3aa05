"""outcome.json: how a run ended, from who saw it, with what the kernel counted meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.files.procfs import kilobytes, read_file
from memory.record.earlier_attempts import LOGS
from memory.supervision.options import Options

VERSION = 1
_NEAR = 0.9
"""Share of the limit from which the end line is printed."""
_OF_THE_JOB = (
    "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_STEP_ID", "SLURM_PROCID",
    "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_RESTART_COUNT", "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_PARTITION", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME",
    "SLURM_CLUSTER_NAME", "SLURMD_NODENAME",
)  # fmt: skip


def beginning(options: Options, started_s: float) -> dict[str, Any]:
    """What is known before the command has started."""
    return {
        "version": VERSION,
        "command": list(options.command),
        "pid": None,
        "supervisor_pid": os.getpid(),
        "host": host_name(),
        "attempt": options.attempt,
        "started_s": round(started_s, 3),
        "ended_s": None,
        "exit_code": None,
        "signal": None,
        "by": "lost",
        "signals_passed_on": [],
        "log_bytes_before": log_bytes(options.output),
        "environment": {name: os.environ[name] for name in _OF_THE_JOB if name in os.environ},
    }


def log_bytes(folder: str) -> dict[str, int]:
    """Of each log in the run's folder: what is there already is of an earlier attempt."""
    found = {}
    for name in LOGS:
        try:
            found[name] = os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue
    return found


def ending(status: int | None) -> dict[str, Any]:
    """exit_code, signal, by. status: as wait(2) tells it; None where that was lost."""
    if status is None:
        return {"exit_code": None, "signal": None, "by": "lost"}
    if os.WIFSIGNALED(status):
        return {"exit_code": None, "signal": signal_name(os.WTERMSIG(status)), "by": "signal"}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None, "by": "exit"}


def signal_name(number: int) -> str:
    """`SIGKILL`; `SIGRTMIN+3` and the like have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rlimits(pid: int, proc: str = "/proc") -> dict[str, int | None] | None:
    """Address space and data size that the process may have, and the seconds of CPU at which the kernel sends
    it SIGKILL; None: as much as it likes. Also of a zombie.
    """
    content = read_file(f"{proc}/{pid}/limits")
    if content is None:
        return None
    found: dict[str, int | None] = {}
    for name, words, column in (
        ("as_bytes", b"Max address space", 0),
        ("data_bytes", b"Max data size", 0),
        ("cpu_hard_s", b"Max cpu time", 1),
    ):
        line = next((line for line in content.splitlines() if line.startswith(words)), b"")
        told = line[len(words) :].split()[column : column + 1]
        found[name] = int(told[0]) if told and told[0].isdigit() else None
    return found


def swap_bytes(proc: str = "/proc") -> int | None:
    """Of the machine; 0: it has none."""
    content = read_file(f"{proc}/meminfo")
    at = -1 if content is None else content.find(b"SwapTotal:")
    return None if content is None or at < 0 else kilobytes(content[at : at + 60], (b"SwapTotal:",))[0]


def own_rss_bytes() -> int | None:
    """Of this process."""
    words = (read_file("/proc/self/statm") or b"").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else None


def rss_unit_bytes() -> int:
    """Of getrusage's ru_maxrss, which macOS tells in bytes."""
    return 1 if sys.platform == "darwin" else 1024


def host_name() -> str:
    """This host."""
    return os.uname().nodename


def summary(outcome: dict[str, Any], options: Options) -> str | None:
    """How it ended, how near it came to its limit, what to type next. None: nothing that must be told."""
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
    if kills:
        amount += f", the kernel killed {kills} process{'es' * (kills != 1)} of its cgroup for memory"
    return (
        f"[mem] {how} after {seconds:.1f} s, {amount}; next: {options.explain} {shlex.quote(options.output)}"
    )


def _kills(outcome: dict[str, Any]) -> int:
    """That the kernel counted while it ran: also of a child whose end the command took no notice of."""
    before, after = ((outcome.get(f"counters_{when}") or {}).get("oom_kill") for when in ("before", "after"))
    return max(0, after - before) if isinstance(before, int) and isinstance(after, int) else 0
