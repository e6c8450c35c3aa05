"""Fill the signals from the evidence of a run."""

from __future__ import annotations

import re

from experiment_utils.json_values import mapping, mappings, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.files_read import files_read
from memory.explain.evidence.gpu_message import gpu_message, recorded_device
from memory.explain.evidence.leaks_seen import leak_seen
from memory.explain.evidence.log_patterns import MANAGERS, line_of
from memory.explain.evidence.own_error import OwnError, own_error
from memory.explain.evidence.process_memory import (
    known_names,
    known_pids,
    neighbours,
    victim_of,
    workers,
)
from memory.explain.evidence.rise import last_rise
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.savings import estimated
from memory.explain.evidence.slurm_rows import line_is_of_run, slurm_rows
from memory.explain.signals import ASKING, Parts, PressureSigns, Said, SharedMemory, Signals
from memory.record.samples import Sample

_ENDING = ASKING[:4]
_LOW_HOST = 0.05
"""Share of the machine's memory: less than this available is short."""


def read_signals(facts: RunFacts) -> Signals:
    """Fill the signals from the evidence of a run."""
    passed = mappings(facts.outcome.get("signals_passed_on"))
    asking = [entry for entry in passed if text(entry.get("signal")) in ASKING]
    sent = next((e for e in asking if text(e.get("from_name")) == "timeout"), asking[-1] if asking else {})
    asked_by = facts.signal if facts.signal in ASKING else text(sent.get("signal"))
    error = own_error(facts) if _may_be_error(facts) else OwnError()
    gpu = gpu_message(error.text) if error.kind.startswith("gpu") else None
    if gpu is not None and gpu.allocated_bytes is None:
        gpu = recorded_device(facts.records, gpu.asked_bytes, gpu.line) or gpu
    named = facts.kernel_named_victim
    rise = last_rise([point for point in facts.u_series if point[0] >= (facts.limit_changed_s or 0.0)])
    own_path = text(facts.outcome.get("cgroup_path"))
    at = facts.limit_at
    victim = victim_of(facts)
    rows = slurm_rows(facts)
    kind = "host" if at == "host" else "cgroup" if at else "unknown"
    return Signals(
        facts,
        end=_end(facts),
        exit_code=facts.exit_code or 0,
        signal=facts.signal or "",
        signal_is_certain=facts.signal_is_certain,
        asked_by=asked_by or "",
        asked_from=text(sent.get("from_name")),
        says_cancelled=facts.state == "cancelled",
        is_orphan=not facts.outcome and bool(facts.samples) and "SIGTERM" in facts.reason,
        stopped_itself=any(text(e.get("signal")) in _ENDING for e in passed)
        and facts.exit_code not in (None, 0)
        and facts.signal is None
        and facts.state != "failed",
        timed_out_by=_timed_out_by(facts),
        stage=facts.stage_name,
        has_run=bool(facts.outcome or facts.samples or facts.status or facts.records),
        has_samples=bool(facts.samples),
        is_ours=facts.is_ours,
        says_failed=facts.state == "failed",
        kills="no counter" if facts.kills is None else "counted" if facts.kills else "none",
        kill_count=facts.kills or 0,
        group_kills=facts.group_kills or 0,
        limit_hits=facts.limit_hits or 0,
        never_at_limit=facts.met_another_limit,
        lived_on_s=(facts.lived_on_s or 0.0) if facts.outlived_kills else 0.0,
        parent_killed=not facts.kills and bool(facts.parents) and not facts.has_ended_well,
        limit_is_above=at.startswith("/") and own_path.startswith(at.rstrip("/") + "/"),
        kernel_named=bool(named) and victim is not None,
        victim=victim,
        victim_is_named=bool(mapping(facts.outcome.get("victim"))) or error.pid in known_pids(facts) - {0},
        victim_vanished_then=victim is not None and victim.pid is not None and facts.kill_time_s is not None,
        limit_bytes=facts.limit_bytes or 0,
        limit_at="unseen" if facts.unseen_cgroup else kind,
        peak_share=facts.peak_share or 0.0,
        nearness={True: "near", False: "far", None: "unknown"}[facts.near_limit],
        last_share=facts.u_series[-1][1] / facts.limit_bytes if facts.u_series and facts.limit_bytes else 0.0,
        host_is_short=_host_is_short(facts),
        peak_of_host=(facts.peak_bytes or 0) / facts.host_bytes if facts.host_bytes else 0.0,
        needed_bytes=estimated(facts) or 0,
        has_made_a_step=any(
            record.get("event") == "end" and mapping(record.get("facts")).get("step") is not None
            for record in facts.records
        ),
        rlimits=_rlimits(facts),
        parts=_parts(facts),
        rise=rise,
        rose_by=_rose_by(facts),
        leak=leak_seen(facts),
        workers=workers(facts),
        neighbours=neighbours(facts),
        files=files_read(facts),
        shared=_shared_memory(facts),
        pressure=_pressure(facts),
        error=error,
        gpu=gpu,
        gpu_leak_bytes=_gpu_leak(facts),
        said=_said(facts) | (_named_to_supervisor(named) if victim is not None else {}),
        slurm=rows,
    )


def _end(facts: RunFacts) -> str:
    if facts.is_running:
        return "running"
    if facts.has_ended_well:
        return "ok"
    if facts.signal:
        return "signal"
    if facts.exit_code is not None or facts.state in ("failed", "cancelled"):
        return "error"
    if facts.vanished:
        return "lost"
    return "log only" if facts.log.strip() else "unknown" if facts.has_evidence else "no evidence"


def _may_be_error(facts: RunFacts) -> bool:
    """It ended by its own error, so that the end of its log can name it."""
    by_signal = facts.signal_is_certain and facts.signal not in (None, "SIGABRT", "SIGBUS")
    return not (facts.has_ended_well or facts.is_running or by_signal)


def _timed_out_by(facts: RunFacts) -> str:
    names = [word.rpartition("/")[2] for word in facts.command]
    sent_by = [text(e.get("from_name")) for e in mappings(facts.outcome.get("signals_passed_on"))]
    lived_s = (seconds(facts.outcome.get("ended_s")) or 0) - (seconds(facts.outcome.get("started_s")) or 0)
    if facts.exit_code == 124:
        return "timeout" if "timeout" in names or not names else "timeout in a script"
    if facts.cpu_limit_s is not None or facts.signal == "SIGXCPU":
        return "cpu limit"
    if "timeout" in sent_by and (facts.signal or facts.exit_code):
        return "timeout by signal"
    if "timeout" in names and facts.signal in ("SIGKILL", "SIGTERM") and not facts.kills:
        words = facts.command[names.index("timeout") + 1 :]
        given_s = next((s for word in words if (s := _duration_s(word)) is not None), None)
        return "timeout" if given_s is not None and lived_s >= given_s - 0.5 else ""
    stopped = facts.signal in ("SIGTERM", "SIGKILL", "SIGUSR2", "SIGINT") or facts.state == "cancelled"
    late_s = facts.after_job_end_s
    return "job end" if late_s is not None and -5 < late_s < 90 and stopped and not facts.kills else ""


def _duration_s(word: str) -> float | None:
    """Convert a duration as timeout(1) takes it: `90`, `1.5m`."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", word)
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def _host_is_short(facts: RunFacts) -> bool:
    left, total = facts.least_available_bytes, facts.host_bytes
    return left is not None and left < (_LOW_HOST * total if total else 512 << 20)


def _rlimits(facts: RunFacts) -> tuple[str, ...]:
    limits = mapping(facts.outcome.get("rlimits"))
    names = {"as_bytes": "RLIMIT_AS (ulimit -v)", "data_bytes": "RLIMIT_DATA (ulimit -d)"}
    known = ((name, unsigned(limits.get(key))) for key, name in names.items())
    return tuple(f"{name} is {format_bytes(limit)}" for name, limit in known if limit)


def _parts(facts: RunFacts) -> Parts:
    top = max(facts.samples, key=lambda s: s.unreclaimable_bytes or 0, default=None)
    if top is None:
        return Parts(u=facts.peak_bytes or 0)
    tables = max((value for _, value in facts.series("page_tables_bytes")), default=0)
    kernel = max((value for _, value in facts.series("kernel_bytes")), default=0)
    killed_s, limit = facts.kill_time_s, facts.limit_bytes or 0
    before = [s for s in facts.samples if killed_s is None or s.time_s < killed_s]
    last = before[-1] if before else top
    usage, cache = last.usage_bytes or 0, last.cache_bytes or 0
    fills = bool(facts.kills and limit) and usage >= 0.9 * limit and cache >= 0.4 * limit
    return Parts(
        u=facts.peak_bytes or 0,
        main=(top.tree[0].anon_bytes or 0) if top.tree else 0,
        kernel=kernel,
        page_tables=tables,
        locked=top.locked_bytes or 0,
        cache_before_kill=cache if fills else 0,
    )


def _rose_by(facts: RunFacts) -> str:
    rises = {name: last_rise(facts.series(f"{name}_bytes")) for name in ("anon", "shmem", "kernel", "locked")}
    amounts = {name: rise.bytes for name, rise in rises.items() if rise is not None}
    return max(amounts, key=lambda name: amounts[name], default="")


def _shared_memory(facts: RunFacts) -> SharedMemory:
    outcome = mapping(facts.outcome.get("dev_shm"))
    looks = [(s.dev_shm_used_bytes, s.dev_shm_total_bytes) for s in facts.samples]
    total = unsigned(outcome.get("total_bytes"))
    looks += [(unsigned(outcome.get(f"used_{when}_bytes")), total) for when in ("before", "after")]
    full, used, size = max(
        ((u / t, u, t) for u, t in looks if u is not None and t), default=(0.0, 0, total or 0)
    )
    known = [s for s in facts.samples if s.unreclaimable_bytes and s.shmem_bytes is not None]
    before = unsigned(outcome.get("used_before_bytes")) or 0
    if not known:
        return SharedMemory(before_bytes=before, full=full, used_bytes=used, total_bytes=size)
    top = max(known, key=lambda s: s.unreclaimable_bytes or 0)
    begin, shmem = known[0].shmem_bytes or 0, top.shmem_bytes or 0
    nearly = [s for s in known if (s.shmem_bytes or 0) >= 0.8 * shmem]
    whole = max(nearly, key=lambda s: (s.processes or 0, s.unreclaimable_bytes or 0))
    return SharedMemory(
        share=shmem / max(1, top.unreclaimable_bytes or 0),
        mapped_by=sum((process.shmem_bytes or 0) > 8 << 20 for process in whole.tree),
        is_of_workers=_is_of_workers(whole) and shmem - begin > 8 << 20,
        before_bytes=before,
        full=full,
        used_bytes=used,
        total_bytes=size,
    )


def _is_of_workers(look: Sample) -> bool:
    """Each child has mapped a part of its own, the main process next to nothing of it."""
    if len(look.tree) < 2:
        return False
    of_main, *of_others = [process.shmem_bytes or 0 for process in look.tree]
    shmem = look.shmem_bytes or 0
    rest = (look.usage_bytes or 0) - (look.cache_bytes or 0) - (look.tree_anon_bytes or 0)
    rest -= (look.locked_bytes or 0) + (look.kernel_bytes or 0)
    is_shared = of_main + sum(of_others) > 1.3 * max(shmem, rest)
    return (max(of_others) > 8 << 20 or of_main > 8 << 20) and of_main < 0.7 * shmem and not is_shared


def _pressure(facts: RunFacts) -> PressureSigns:
    with_limit = [(s, s.limit_bytes or facts.limit_bytes) for s in facts.samples]
    full = [s for s, limit in with_limit if limit and (s.usage_bytes or 0) >= 0.9 * limit]
    shares = [(s.usage_bytes or 0) / limit for s, limit in with_limit if limit]
    top = max(facts.samples, key=lambda s: s.tree_rss_bytes or 0, default=Sample(0.0))
    swap = [value for _, value in facts.series("swap_bytes")]
    lasted_s = full[-1].time_s - full[0].time_s if len(full) >= 3 and facts.limit_at != "host" else 0.0

    def per_s(name: str) -> float:
        first, last = (getattr(s, name) for s in (full[0], full[-1])) if lasted_s >= 5 else (None, None)
        return (last - first) / lasted_s if first is not None and last is not None and last > first else 0.0

    return PressureSigns(
        seconds=lasted_s,
        refaulted_bytes_per_s=4096 * per_s("refaults"),
        stalled_share=per_s("stalled_us") / 1e6,
        faults_per_s=per_s("major_faults"),
        high_events=facts.counted("high", "high_events") or 0,
        swap_rose_bytes=max(swap) - swap[0] if swap else 0,
        usage_share=max(shares, default=0.0) if facts.limit_at != "host" else 0.0,
        rss_bytes=top.tree_rss_bytes or 0,
        rss_files_bytes=top.tree_file_bytes or 0,
    )


def _gpu_leak(facts: RunFacts) -> int:
    looks = (mapping(record.get("leak")) for record in reversed(facts.records))
    leak = mapping(next((look for look in looks if look), {}).get("gpu"))
    return (unsigned(leak.get("slope_bytes_per_step")) or 0) if leak.get("is_leak") is True else 0


def _named_to_supervisor(line: str) -> dict[str, Said]:
    kind = "kernel_cgroup" if "Memory cgroup" in line else "kernel_host"
    return {kind: Said(line, "outcome.json")} if line else {}


def _said(facts: RunFacts) -> dict[str, Said]:
    """The last line of each kind that a manager can have written of this run.

    A run that ended well needs no line. Slurm's lines name their job, the kernel's a process.
    """
    if facts.is_running or (facts.has_ended_well and not facts.kills):
        return {}
    found: dict[str, Said] = {}
    own = "\n".join(filter(None, facts.logs.values()))
    in_slurm = facts.slurm is not None or bool(text(facts.environment.get("SLURM_JOB_ID")))
    watched = bool(facts.outcome or facts.samples)
    pids, names = known_pids(facts), known_names(facts)
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
                found[pattern.kind] = Said(line, facts.log_name, pid, name, sure)
    return found
