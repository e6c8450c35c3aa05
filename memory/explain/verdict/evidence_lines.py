"""Evidence lines of the rows: one function for each name, out of the signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiment_utils.json_values import mapping, mappings, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.accounting.maxrss import max_rss_meaning
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import own_step
from memory.explain.signals import Signals

_LONGEST_PATH = 48


def lines_of(s: Signals, names: str) -> tuple[str, ...]:
    """Lines by their names, without those that are absent.

    A name is a key of `SENTENCES` or `LINES`, `before_end`, or a kind of `log_patterns.MANAGERS`.
    """
    words = names.replace("before_end", "peak limit rise stage stack").split()
    found: list[str | None] = []
    for word in words:
        found += LINES[word](s) if word in LINES else ()
        found += [SENTENCES[word](s)] if word in SENTENCES else []
        if said := s.says(word):
            found.append(f"{said.line[:240]} ({said.source})")
    return tuple(dict.fromkeys(line for line in found if line))


def place(path: str) -> str:
    """Path of a cgroup; of a long one its end, by which jobs differ."""
    return path if len(path) <= _LONGEST_PATH else ".../" + "/".join(path.split("/")[-2:])


def of_limit(facts: RunFacts, amount: int, limit: int | None = None) -> str:
    """`31.9 GB of 32.0 GB (100%)`: of that limit, else of the one at the end."""
    limit = limit or facts.limit_bytes
    if not limit:
        return format_bytes(amount)
    return f"{format_bytes(amount)} of {format_bytes(limit)} ({100 * amount / limit:.0f}%)"


# How it ended


def _counters(s: Signals) -> Iterable[str | None]:
    """Kills that the kernel counted."""
    if s.kills == "no counter":
        return
    kills = f"{s.kill_count or 'no'} kill{'s' * (s.kill_count > 1)} for memory"
    more = f", the limit was met {s.limit_hits:,} times" if s.limit_hits else ""
    source = "outcome.json" if s.facts.outcome.get("counters_after") else "memory.ring"
    yield f"the kernel counted {kills} in the cgroup while it ran{more} ({source})"


def _own_error(s: Signals) -> Iterable[str | None]:
    yield s.facts.how_it_ended
    yield from lines_of(s, "crash")
    last, reason = s.error.exception, s.facts.reason if s.says_failed else ""
    yield f"the run says: {reason} (status.json)" if reason and reason not in last else None
    yield f"its last error: {last} ({s.facts.log_name})" if last else None
    yield from _slurm_row(s) if s.slurm.state == "FAILED" else ()


def _sender(s: Signals) -> Iterable[str | None]:
    for sent in mappings(s.facts.outcome.get("signals_passed_on"))[-1:]:
        pid, name = unsigned(sent.get("from_pid")), text(sent.get("from_name"))
        sender = f" from pid {pid}{f' ({name})' if name else ''}" if pid else ""
        yield f"{text(sent.get('signal'))} came to the supervisor{sender} (outcome.json)"
    yield f"the run says: {s.facts.reason} (status.json)" if s.facts.reason else None


def _time(s: Signals) -> Iterable[str | None]:
    outcome = s.facts.outcome
    lived_s = (seconds(outcome.get("ended_s")) or 0.0) - (seconds(outcome.get("started_s")) or 0.0)
    if s.timed_out_by == "cpu limit":
        used_s, limit_s = seconds(outcome.get("cpu_s")) or 0.0, s.facts.cpu_limit_s or 0
        yield f"it had used {used_s:.1f} s of CPU, and may use {limit_s:,} (RLIMIT_CPU; outcome.json)"
    elif s.timed_out_by == "job end":
        late_s = s.facts.after_job_end_s or 0.0
        yield f"it ended {late_s:+.0f} s from the end that Slurm had set (SLURM_JOB_END_TIME, outcome.json)"
    elif s.exit_code == 124:
        yield "exit code 124 is what timeout(1) returns (outcome.json)"
    elif s.timed_out_by == "timeout":
        yield f"it lived {lived_s:.1f} s under timeout(1) (outcome.json)"


def _machine(s: Signals) -> Iterable[str | None]:
    if s.limit_at == "host":
        yield "no cgroup has a limit below the machine's memory (outcome.json)"
    elif s.host_is_short:
        left = format_bytes(s.facts.least_available_bytes or 0)
        yield f"the machine had only {left} left, while the cgroup was far from its limit (memory.ring)"
    elif s.kills == "counted":
        yield "a kill was counted, but the cgroup never met its limit (outcome.json: oom, max)"


def _above(s: Signals) -> Iterable[str | None]:
    for path, limit, kills in s.facts.parents[:1]:
        at = f", at its limit of {format_bytes(limit)}" if limit else ""
        yield f"{path}{at}, counted {kills} kills, the run's own cgroup none (outcome.json)"


# U, its parts and how it moved


def _peak(s: Signals) -> Iterable[str | None]:
    facts = s.facts
    if facts.peak_bytes is None:
        return
    where = "" if facts.limit_at in ("", "host") else f" at {place(facts.limit_at)}"
    whose = " of the host's memory" if facts.limit_at == "host" else ""
    held = of_limit(facts, facts.peak_bytes, facts.peak_limit_bytes)
    yield f"U, the memory that cannot be given back, was seen at {held}{whose}{where} (sampled)"


def _limit(s: Signals) -> Iterable[str | None]:
    if s.facts.limit_changed_s is not None:
        limits = ", ".join(format_bytes(limit) for _, limit in s.facts.limits[-4:])
        share = f"; U came to {100 * s.peak_share:.0f}% of that of its moment" if s.peak_share else ""
        yield f"the limit changed while it ran: {limits}{share} (memory.ring)"


def _stage(s: Signals) -> Iterable[str | None]:
    record, outcome = s.facts.stage, s.facts.outcome
    if record is None:
        yield f"it was in stage {s.stage} (status.json)" if s.stage else None
        return
    step = unsigned(mapping(record.get("facts")).get("step"))
    name = text(record.get("stage")) + (f" step {step:,}" if step else "")
    if record.get("event") != "begin":
        yield f"the last stage that ended was {name} (memory.jsonl)"
        return
    began_s, ended_s = seconds(record.get("time_s")), seconds(outcome.get("ended_s"))
    since = (
        f", {ended_s - began_s:.1f} s before the end" if began_s and ended_s and ended_s >= began_s else ""
    )
    yield f"stage {name} had begun{since} and did not end (memory.jsonl)"


def _stack(s: Signals) -> Iterable[str | None]:
    found = s.facts.frames
    users = next((frame for frame in found if frame.is_users), found[0] if found else None)
    yield f"near the limit it was at {users} ({s.facts.black_boxes[-1].name})" if users else None


def _parts(s: Signals) -> Iterable[str | None]:
    """Composition of U when it was highest."""
    own, mapped = s.workers, s.shared.mapped_by
    low, high = format_bytes(own.smallest_bytes), format_bytes(own.largest_bytes)
    known = {
        "anon of the main process": s.parts.main,
        f"anon of {own.count} children ({low} to {high} each, shared pages included)": own.own_bytes,
        "copied from the main process since a fork": s.workers.copied_bytes,
        "of others in the cgroup": int(s.neighbours.share * s.parts.u),
        f"shared memory, mapped by {mapped} process{'es' * (mapped != 1)}": int(s.shared.share * s.parts.u),
        "the kernel's own": s.parts.kernel,
        "page tables, part of the kernel's own": s.parts.page_tables,
        "files locked in memory": s.parts.locked,
    }
    least = max(1 << 20, 0.05 * s.parts.u)
    parts = [f"{format_bytes(amount)} {name}" for name, amount in known.items() if amount >= least]
    yield f"U at its highest, {format_bytes(s.parts.u)}: {', '.join(parts)} (memory.ring)" if parts else None


def _peak_of_others(s: Signals) -> Iterable[str | None]:
    own, held = 100 * (1 - s.neighbours.share), of_limit(s.facts, s.parts.u, s.facts.peak_limit_bytes)
    yield f"at its peak U was {held}, of which this run's processes held {own:.0f}% (memory.ring)"
    if s.neighbours.rise_bytes:
        rose, theirs = format_bytes(s.neighbours.rise_bytes), format_bytes(s.neighbours.of_rise_bytes)
        yield f"of the last {rose} that U rose, {theirs} were not this run's (memory.ring)"


def _shm(s: Signals) -> Iterable[str | None]:
    if s.shared.total_bytes:
        used, total = format_bytes(s.shared.used_bytes), format_bytes(s.shared.total_bytes)
        before = format_bytes(s.shared.before_bytes)
        yield f"/dev/shm: up to {used} of {total} in use, {before} at the start (memory.ring, outcome.json)"


def _file(s: Signals) -> Iterable[str | None]:
    if s.files.cache_per_anon >= 0.2:
        rate = f"{s.files.cache_per_anon:.1f} bytes for each byte"
        yield f"page cache rose with it, at least {rate} (memory.ring)"
    if s.files.width and s.rise:
        size = format_bytes(s.files.size_bytes)
        yield f"it rose by {format_bytes(s.rise.bytes)}; {s.files.name or 'the file'} has {size}"


def thrash_signs(s: Signals) -> list[str]:
    """Signs that pages are dropped and read again, as text."""
    own, signs = s.pressure, []
    if own.refaulted_bytes_per_s > 4 << 20:
        signs.append(
            f"{format_bytes(own.refaulted_bytes_per_s)}/s of pages were read again that had been dropped"
        )
    if own.stalled_share > 0.1:
        signs.append(
            f"all of its tasks waited for memory {100 * own.stalled_share:.0f}% of the time (PSI full)"
        )
    if own.faults_per_s > 200 and (signs or (not own.refaulted_bytes_per_s and s.limit_hits >= 10_000)):
        signs.append(f"{own.faults_per_s:,.0f} page faults a second had to wait for the disk")
    return signs


def _thrash(s: Signals) -> Iterable[str | None]:
    over = f"over {s.pressure.seconds:.0f} s at the limit"
    yield from (f"{over} {sign} (memory.ring)" for sign in thrash_signs(s))
    if swapped := s.pressure.swap_rose_bytes:
        yield f"swap rose by {format_bytes(swapped)} while it ran (memory.ring)"


def _gpu(s: Signals) -> Iterable[str | None]:
    if s.gpu is None:
        return
    amounts = {
        "asked for": s.gpu.asked_bytes, "free": s.gpu.free_bytes, "tensors": s.gpu.allocated_bytes,
        "idle in torch's pool": s.gpu.unallocated_bytes, "other processes": s.gpu.others_bytes or None,
        "device": s.gpu.total_bytes,
    }  # fmt: skip
    known = [f"{name} {format_bytes(amount)}" for name, amount in amounts.items() if amount is not None]
    where = "in that message" if s.error.kind == "gpu_message" else "at the last stage (memory.jsonl)"
    yield f"{where}: {', '.join(known)}" if len(known) > 1 else None


# Slurm's accounting


def _slurm_oom_rows(s: Signals) -> Iterable[str | None]:
    yield from (f"{row} ({s.slurm.source})" for row in s.slurm.out_of_memory[:4])
    job = s.facts.slurm.job if s.facts.slurm else None
    is_other = job is not None and job.row not in s.slurm.out_of_memory and bool(job.row.state)
    yield f"{job.row} ({s.slurm.source})" if job is not None and is_other else None
    asked, of_job = s.slurm.asked_bytes, s.slurm.job_asked_bytes
    yield f"the job had requested {format_bytes(of_job)}" if of_job else None
    yield f"the step had requested {format_bytes(asked)} of it" if 0 < asked < of_job else None


def _poll(s: Signals) -> Iterable[str | None]:
    if s.slurm.polls_rss and s.facts.slurm:
        yield f"JobAcctGatherParams={s.facts.slurm.gather_params} (scontrol show config)"
    if s.slurm.rss_bytes and s.slurm.asked_bytes:
        rss, asked = format_bytes(s.slurm.rss_bytes), format_bytes(s.slurm.asked_bytes)
        source = s.slurm.source or "memory.ring"
        yield f"RSS of all processes was up to {rss}, {asked} were requested ({source})"


def _slurm_row(s: Signals) -> Iterable[str | None]:
    row = s.slurm.ended_by or (s.facts.slurm.job.row if s.facts.slurm and s.facts.slurm.job else None)
    if row is None:
        return
    who = f" by user {row.cancelled_by}" if row.cancelled_by else ""
    why = f", {row.reason}" if row.reason else ""
    ran = (
        f"; it had run {row.elapsed_s:.0f} of {row.timelimit_s:.0f} s"
        if row.elapsed_s and row.timelimit_s
        else ""
    )
    yield f"{row}{who}{why} ({s.slurm.source}){ran}"


def _slurm_killed(s: Signals) -> Iterable[str | None]:
    yield from (f"{row}, which is SIGKILL ({s.slurm.source})" for row in s.slurm.killed[:2])
    if s.slurm.max_rss_bytes and s.slurm.asked_bytes:
        held, asked = format_bytes(s.slurm.max_rss_bytes), format_bytes(s.slurm.asked_bytes)
        yield f"MaxRSS {held} of {asked} requested ({s.slurm.source})"


def _max_rss(s: Signals) -> Iterable[str | None]:
    slurm = s.facts.slurm
    rows = [row for row in slurm.job.rows if row.max_rss_bytes] if slurm and slurm.job else []
    if not rows or slurm is None:
        return
    own = own_step(s.facts)
    row = max(rows, key=lambda row: (row.step == own, row.max_rss_bytes or 0))
    asked = f" of {format_bytes(s.slurm.asked_bytes)} requested" if s.slurm.asked_bytes else ""
    yield f"{row.id}: MaxRSS {format_bytes(row.max_rss_bytes or 0)}{asked} ({slurm.source})"
    yield max_rss_meaning(slurm)


def _earlier_starts(s: Signals) -> Iterable[str | None]:
    earlier = s.facts.slurm.earlier if s.facts.slurm else ()
    yield from (f"{row} (sacct --duplicates)" for job in earlier[-4:] for row in job.rows[:1])


def _other_tasks(s: Signals) -> Iterable[str | None]:
    slurm = s.facts.slurm
    if slurm is None or slurm.job is None or not s.slurm.other_tasks:
        return
    rows = [one.row for one in slurm.last_starts]
    shown = ", ".join(f"{row.job} {row.state}" for row in rows[:6])
    more = f" and {len(rows) - 6} more" * (len(rows) > 6)
    own = slurm.job.row.job
    other = next((row.job for row in rows if row.job != own), "")
    yield f"this is {own}, of {len(rows)} tasks: {shown}{more} ({slurm.source}); another: --job {other}"


_B = format_bytes
SENTENCES: dict[str, Callable[[Signals], str | None]] = {
    "cache_before_kill": lambda s: (
        f"at the last look {_B(s.parts.cache_before_kill)} in use was page cache (memory.ring)"
    ) if s.parts.cache_before_kill else None,
    "copies": lambda s: (
        f"the cgroup holds {_B(s.workers.copied_bytes)} of anon more than its processes grew by: copies of "
        f"pages that were shared at the fork, up to {_B(s.workers.shared_bytes)} (memory.ring)"
    ),
    "ended": lambda s: s.facts.how_it_ended,
    "error": lambda s: (
        f"{s.gpu.line if s.gpu else s.error.line} ({s.facts.log_name})"
    ) if s.error.line else None,
    "high_events": lambda s: f"memory.events high rose by {s.pressure.high_events:,} (memory.ring)",
    "leak": lambda s: s.leak.line if s.leak else None,
    "lived_on": lambda s: (
        f"the main process was seen alive {s.lived_on_s:.1f} s after the last kill (memory.ring)"
    ) if s.lived_on_s else None,
    "parent_limit": lambda s: (
        f"the limit is that of {place(s.facts.limit_at)}, the run is in "
        f"{place(text(s.facts.outcome.get('cgroup_path')))} (outcome.json)"
    ),
    "rise": lambda s: (
        f"before the end U rose from {s.rise} ({'memory.ring' if s.has_samples else 'memory.jsonl'})"
    ) if s.rise else None,
    "rss": lambda s: (
        f"RSS of all processes was up to {_B(s.pressure.rss_bytes)}, of which "
        f"{_B(s.pressure.rss_files_bytes)} were mapped files (memory.ring)"
    ),
}  # fmt: skip
"""Lines that are one sentence."""
LINES: dict[str, Callable[[Signals], Iterable[str | None]]] = {
    "above": _above, "counters": _counters, "earlier_starts": _earlier_starts, "file": _file, "gpu": _gpu,
    "limit": _limit, "machine": _machine, "max_rss": _max_rss, "other_tasks": _other_tasks,
    "own_error": _own_error, "parts": _parts, "peak": _peak, "peak_of_others": _peak_of_others, "poll": _poll,
    "sender": _sender, "shm": _shm, "slurm_killed": _slurm_killed, "slurm_oom_rows": _slurm_oom_rows,
    "slurm_row": _slurm_row, "stack": _stack, "stage": _stage, "thrash": _thrash, "time": _time,
}  # fmt: skip
