"""Fill the signals from the evidence of a run."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import at_path, mapping, mappings, seconds, text, texts, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.gpu_message import gpu_message, recorded_device
from memory.explain.evidence.growth import (
    cache_per_anon,
    last_rise,
    leak_seen,
    reported_leaks,
    step_ends,
    step_of,
)  # fmt: skip
from memory.explain.evidence.log_patterns import MANAGERS, line_of
from memory.explain.evidence.own_error import OwnError, own_error
from memory.explain.evidence.process_memory import known_processes, neighbours, victim_of, workers
from memory.explain.evidence.run_facts import RunFacts, signal_of
from memory.explain.evidence.slurm_rows import FROM_OUTSIDE, WAITING, SlurmRows, line_is_of_run, slurm_rows
from memory.explain.signals import ASKING, Parts, Said, SharedMemory, Signals
from memory.record.samples import Sample

NEAR = 0.85
"""Share of the limit from which U is near it."""
_TICKS = 0.3
"""The kernel counts CPU time for its limit in ticks, getrusage exactly: they differ by a part of the root."""
_LOW_HOST = 0.05
"""Share of the machine's memory: less than this available is short."""


def read_signals(facts: RunFacts) -> Signals:
    """Fill the signals from the evidence of a run."""
    known = {each.name: getattr(facts, each.name, None) for each in fields(Signals)} | {"facts": facts}
    error = own_error(facts) if _can_be_error(facts) else OwnError()
    gpu = gpu_message(error.text) if error.kind.startswith("gpu") else None
    if gpu is not None and gpu.allocated_bytes is None:
        gpu = recorded_device(facts.records, gpu)
    kills, rows, victim = facts.kills, slurm_rows(facts), victim_of(facts)
    rise, swap = last_rise(facts.u_series), [value for _, value in facts.series("swap_bytes")]
    usage = max((value for _, value in facts.series("usage_bytes")), default=0)
    known |= {
        **_end(facts, rows),
        **_limits(facts, rows),
        "timed_out_by": _timed_out_by(facts),
        "has_run": bool(facts.outcome or facts.samples or facts.status or facts.records),
        "has_samples": bool(facts.samples),
        "kills": "no counter" if kills is None else "counted" if kills else "none",
        "kill_count": kills,
        "victim": victim,
        "victim_is_named": bool(facts.outcome.get("victim")) or error.pid in known_processes(facts)[0] - {0},
        "has_made_a_step": any(step_of(each) for each in step_ends(facts)),
        "parts": _parts(facts),
        "rise": rise,
        "rose_by": _rose_by(facts),
        "leak": leak_seen(facts),
        "workers": workers(facts),
        "neighbours": neighbours(facts, rise),
        "cache_per_anon": cache_per_anon(facts),
        "shared": _shared_memory(facts),
        "usage_share": usage / facts.limit_bytes if facts.limit_bytes and facts.limit_at != "host" else 0.0,
        "high_events": facts.counted("high", "high_events"),
        "swap_rose_bytes": max(swap) - swap[0] if swap else 0,
        "error": error,
        "gpu": gpu,
        "gpu_leak": reported_leaks(facts).get("gpu"),
        "said": _said(facts),
        "slurm": rows,
    }
    return Signals(**{name: value for name, value in known.items() if value is not None})


def _end(facts: RunFacts, rows: SlurmRows) -> dict[str, Any]:
    """The end of the run by its own files, else by Slurm's row."""
    passed = mappings(facts.outcome.get("signals_passed_on"))
    sent = [name for entry in passed if (name := text(entry.get("signal"))) in ASKING]
    asked_by = facts.signal if facts.signal in ASKING else "".join(sent[-1:])
    found: dict[str, Any] = {"asked_by": asked_by, "how_it_ended": _how_it_ended(facts)}
    if facts.is_running:
        return found | {"end": "running"}
    if facts.has_ended_well:
        return found | {"end": "ok"}
    if facts.signal:
        return found | {"end": "signal"}
    if facts.exit_code is not None or facts.state in ("failed", "cancelled"):
        return found | {"end": "error"}
    row, has_files = rows.own, facts.outcome or facts.status or facts.samples or facts.records
    line = f"{row} ({rows.source})"
    if row is not None and row.state == "COMPLETED":
        return found | {"end": "ok", "how_it_ended": line}
    if rows.ended_by is not None and rows.ended_by.state not in FROM_OUTSIDE:
        by = rows.ended_by
        ended = signal_of(-by.exit_signal if by.exit_signal else by.exit_code)
        found |= {"asked_by": ended if ended in ASKING else asked_by, "how_it_ended": f"{by} ({rows.source})"}
        status = {
            "exit_code": by.exit_code,
            "signal": ended,
            "signal_is_certain": ended in ASKING and bool(by.exit_signal),
        }
        return found | status | {"end": "signal" if ended else "error"}
    if row is not None and not has_files and facts.job and not facts.job.is_over:
        why, where = f" ({row.reason})" if row.reason else "", f" on {row.nodes}" if row.nodes else ""
        so_far = f"{row.job} is {row.state}{why}, for {row.elapsed_s or 0:.0f} s so far{where}"
        return found | {"end": "waiting" if row.state in WAITING else "running", "how_it_ended": so_far}
    if facts.vanished:
        return found | {"end": "lost"}
    is_known = has_files or facts.slurm
    return found | {"end": "log only" if facts.log.strip() else "unknown" if is_known else "no evidence"}


def _how_it_ended(facts: RunFacts) -> str:
    """Its end as text, with the file; empty if no file has it."""
    if facts.outcome.get("signal") and facts.signal:
        return f"it ended by {facts.signal} (outcome.json)"
    if facts.exit_code is not None:
        meaning = f", which is 128 + {facts.signal}" if facts.signal else ""
        return f"exit code {facts.exit_code}{meaning} (outcome.json)"
    return f"status.json says {facts.status.get('state')}" if facts.state else ""


def _limits(facts: RunFacts, rows: SlurmRows) -> dict[str, Any]:
    at, limit, peak = facts.limit_at, facts.limit_bytes, facts.peak_bytes or 0
    unseen = text(facts.recorded("unseen_cgroup")) if at == "host" else ""
    records = (at_path(record, "snapshot.host.total_bytes") for record in facts.records)
    total = next(filter(None, map(unsigned, records)), limit if at == "host" else None)
    available = facts.series("host_available_bytes")
    left = min((value for time_s, value in available if time_s >= available[-1][0] - 60), default=None)
    named = {"as_bytes": "RLIMIT_AS (ulimit -v)", "data_bytes": "RLIMIT_DATA (ulimit -d)"}
    own = {name: unsigned(at_path(facts.outcome, f"rlimits.{key}")) for key, name in named.items()}
    kernel = [value for _, value in facts.series("kernel_bytes")]
    returned = max([0, *(before - after for before, after in pairwise(kernel))]) if not facts.kills else 0
    is_near = bool(limit) and peak - returned >= NEAR * (limit or 0)
    is_known = limit and facts.peak_bytes is not None and (is_near or not unseen)
    hits = max(filter(None, (facts.counted(name, "limit_hits") for name in ("max", "failcnt"))), default=0)
    above = [
        f"{text(level.get('path'))} has a limit of {format_bytes(unsigned(level.get('limit_bytes')) or 0)}"
        for level in mappings(facts.outcome.get("parents"))
        if (unsigned(level.get("limit_bytes")) or 0) > (limit or 0) and at.startswith(text(level.get("path")))
        if facts.kills and not hits and peak < 0.95 * (limit or 0)
    ]
    found = {
        "limit_hits": hits,
        "limit_above": "".join(above[:1]),
        "limit_at": "unseen" if unseen else at if at == "host" else "cgroup" if at else "unknown",
        "unseen_cgroup": unseen,
        "peak_share": peak / limit if limit else 0.0,
        "nearness": ("near" if is_near else "far") if is_known else "unknown",
        "last_share": facts.u_series[-1][1] / limit if facts.u_series and limit else 0.0,
        "host_bytes": total,
        "host_left_bytes": left,
        "host_is_short": left is not None and left < (_LOW_HOST * total if total else 512 << 20),
        "peak_of_host": peak / total if total else 0.0,
        "needed_bytes": unsigned(at_path(facts.evidence.run, "memory.host_bytes")),
        "rlimits": tuple(f"{name} is {format_bytes(limit)}" for name, limit in own.items() if limit),
    }
    if limit is None and rows.asked_bytes:
        share = rows.max_rss_bytes / rows.asked_bytes
        found |= {
            "limit_at": "request",
            "limit_bytes": rows.asked_bytes,
            "last_share": share,
            "peak_share": share,
        }
    return found


def _can_be_error(facts: RunFacts) -> bool:
    """It ended by its own error, so that the end of its log can name it."""
    by_signal = facts.signal_is_certain and facts.signal not in ("", "SIGABRT", "SIGBUS")
    return not (facts.has_ended_well or facts.is_running or by_signal)


def _timed_out_by(facts: RunFacts) -> str:
    command = texts(facts.recorded("command"))
    names = [word.rpartition("/")[2] for word in command]
    sent_by = [text(e.get("from_name")) for e in mappings(facts.outcome.get("signals_passed_on"))]
    lived_s = (seconds(facts.outcome.get("ended_s")) or 0) - (seconds(facts.outcome.get("started_s")) or 0)
    cpu_s, used_s = at_path(facts.outcome, "rlimits.cpu_hard_s"), seconds(facts.outcome.get("cpu_s")) or 0.0
    if facts.exit_code == 124:
        return "timeout" if "timeout" in names or not names else "timeout in a script"
    if facts.signal == "SIGXCPU":
        return "cpu limit"
    if "timeout" in sent_by and (facts.signal or facts.exit_code):
        return "timeout"
    if facts.kills or facts.signal not in ("SIGKILL", "SIGTERM"):
        return ""
    if "timeout" in names:
        durations = (_duration_s(word) for word in command[names.index("timeout") + 1 :])
        return "timeout" if lived_s >= next(filter(None, durations), float("inf")) - 0.5 else ""
    limit_s = unsigned(cpu_s) or 0
    return "cpu limit" if limit_s and used_s >= limit_s - _TICKS * limit_s**0.5 else ""


def _duration_s(word: str) -> float | None:
    """Convert a duration as timeout(1) takes it: `90`, `1.5m`."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", word)
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def _parts(facts: RunFacts) -> Parts:
    top = max(facts.samples, key=lambda s: s.unreclaimable_bytes or 0, default=Sample(0.0))
    killed_s, limit = facts.kill_time_s, facts.limit_bytes or 0
    last = ([s for s in facts.samples if killed_s is None or s.time_s < killed_s] or [top])[-1]
    cache = last.cache_bytes or 0
    fills = bool(facts.kills and limit) and (last.usage_bytes or 0) >= 0.9 * limit and cache >= 0.4 * limit
    return Parts(
        u=facts.peak_bytes or 0,
        main=(top.tree[0].anon_bytes or 0) if top.tree else 0,
        kernel=max((value for _, value in facts.series("kernel_bytes")), default=0),
        page_tables=max((value for _, value in facts.series("page_tables_bytes")), default=0),
        locked=top.locked_bytes or 0,
        cache_before_kill=cache if fills else 0,
    )


def _rose_by(facts: RunFacts) -> str:
    rises = {name: last_rise(facts.series(f"{name}_bytes")) for name in ("anon", "shmem", "kernel", "locked")}
    amounts = {name: rise.bytes for name, rise in rises.items() if rise is not None}
    return max(amounts, key=lambda name: amounts[name], default="")


def _shared_memory(facts: RunFacts) -> SharedMemory:
    outcome = mapping(facts.outcome.get("dev_shm"))
    total, before = unsigned(outcome.get("total_bytes")), unsigned(outcome.get("used_before_bytes")) or 0
    looks = [(s.dev_shm_used_bytes, s.dev_shm_total_bytes) for s in facts.samples]
    looks += [(unsigned(outcome.get(f"used_{when}_bytes")), total) for when in ("before", "after")]
    known = ((used / size, used, size) for used, size in looks if used is not None and size)
    full, used, size = max(known, default=(0.0, 0, total or 0))
    held = max((value for _, value in facts.series("shmem_bytes")), default=0)
    whole = [s for s in facts.samples if (s.shmem_bytes or 0) >= 0.8 * held]
    top = max(whole, key=lambda s: (s.processes or 0, s.shmem_bytes or 0), default=Sample(0.0))
    mapped = [process.shmem_bytes or 0 for process in top.tree]
    return SharedMemory(
        held_bytes=held,
        share=held / max(1, facts.peak_bytes or 0),
        mapped_by=sum(amount > 8 << 20 for amount in mapped),
        is_of_workers=max(mapped[1:], default=0) > 8 << 20
        and mapped[0] < 0.7 * held
        and used - before > 0.5 * held,
        before_bytes=before,
        full=full,
        used_bytes=used,
        total_bytes=size,
    )


def _said(facts: RunFacts) -> dict[str, Said]:
    """The last line of each kind that a manager can have written of this run.

    A run that ended well needs no line. Slurm's lines name their job, the kernel's a process.
    """
    if facts.is_running or (facts.has_ended_well and not facts.kills):
        return {}
    found: dict[str, Said] = {}
    in_slurm = facts.slurm is not None or bool(text(facts.environment.get("SLURM_JOB_ID")))
    watched = bool(facts.outcome or facts.samples)
    pids, names = known_processes(facts)
    own = "\n".join(filter(None, facts.logs.values()))
    for log, is_own in ((own, True), (facts.added_log, False)):
        for pattern in MANAGERS:
            for match in pattern.regex.finditer(log):
                line, groups = line_of(match), match.groupdict()
                pid, name = int(groups.get("pid") or 0), groups.get("name") or ""
                sure = True
                if pattern.kind.startswith("kernel"):
                    if watched and pid not in pids and (is_own or name not in names):
                        continue
                    sure = not watched or pid in pids
                elif pattern.kind.startswith("slurm"):
                    if not line_is_of_run(facts, line) or (watched and is_own and not in_slurm):
                        continue
                    sure = pattern.kind != "slurm_cancelled" or "STEP " not in line
                found[pattern.kind] = Said(line, facts.log_name, name, sure)
    victim = mapping(facts.outcome.get("victim"))
    if (line := text(victim.get("said"))) and not facts.kills:  # the supervisor read it in the kernel's log
        kind = "kernel_cgroup" if "Memory cgroup" in line else "kernel_host"
        found[kind] = Said(line, "outcome.json", text(victim.get("name")))
    return found
