"""Evidence lines of the rows, by name: templates over the signals, and the few that are computed."""

from __future__ import annotations

from experiment_utils.json_values import mappings, text, unsigned
from experiment_utils.quantities import format_bytes
from experiment_utils.run_folder import read_file
from memory.accounting.maxrss import max_rss_meaning
from memory.explain.evidence.growth import step_of
from memory.explain.signals import Signals
from memory.explain.verdict.templates import Text, fill_all, first, when

_LONGEST_PATH = 32


def lines_of(s: Signals, names: str) -> tuple[str, ...]:
    """Lines by their names, keys of `LINES` or kinds of `log_patterns.MANAGERS`, if they are not absent."""
    found: list[str] = []
    for name in names.split():
        found += fill_all(LINES.get(name, ()), s)
        if said := s.says(name):
            found.append(f"{said.line[:200]} ({said.source})")
    return tuple(dict.fromkeys(found))


def place(path: str) -> str:
    """Path of a cgroup; of a long one its end, by which jobs differ."""
    return path if len(path) <= _LONGEST_PATH else ".../" + "/".join(path.split("/")[-2:])


def of_limit(s: Signals, amount: int) -> str:
    """`31.9 GB of 32.0 GB (100%)`."""
    limit = s.limit_bytes
    return f"{format_bytes(amount)} of {format_bytes(limit)} ({100 * amount / limit:.0f}%)" if limit else (
        format_bytes(amount)
    )  # fmt: skip


# How it ended


def _counters(s: Signals) -> str:
    """Kills that the kernel counted."""
    if s.kills == "no counter":
        return ""
    kills = f"{s.kill_count or 'no'} kill{'s' * (s.kill_count > 1)} for memory"
    more = f", the limit was met {s.limit_hits:,} times" if s.limit_hits else ""
    source = "outcome.json" if s.facts.outcome.get("counters_after") else "memory.ring"
    return f"the kernel counted {kills} in the cgroup while it ran{more} ({source})"


def _reason(s: Signals) -> str:
    reason = s.facts.reason
    return f"the run says: {reason} (status.json)" if reason and reason not in s.error.exception else ""


def _sender(s: Signals) -> str:
    sent = (mappings(s.facts.outcome.get("signals_passed_on")) or [{}])[-1]
    sender = f" from {sent.get('from_name')} (pid {sent.get('from_pid')})" if sent.get("from_name") else ""
    return f"{text(sent.get('signal'))} came to the supervisor{sender} (outcome.json)" if sent else ""


# U, its parts, and where the run was


def _stage(s: Signals) -> str:
    record = s.facts.stage
    if not record:
        return f"it was in stage {s.facts.stage_name} (status.json)" if s.facts.stage_name else ""
    step = step_of(record)
    name = text(record.get("stage")) + (f" step {step:,}" if step else "")
    if record.get("event") != "begin":
        return f"the last stage that ended was {name} (memory.jsonl)"
    return f"stage {name} had begun and did not end (memory.jsonl)"


def _stack(s: Signals) -> str:
    found = s.facts.frames
    users = next((frame for frame in found if frame.is_users), found[0] if found else None)
    return f"near the limit it was at {users} (memory.blackbox)" if users else ""


def _largest(s: Signals) -> str:
    """The largest object that the run saw near its limit, if it was a tenth of U."""
    for box in reversed(s.facts.evidence.black_boxes):
        found = (mappings(read_file(box).value.get("largest")) or [{}])[0] if box.suffix == ".json" else {}
        size = unsigned(found.get("bytes")) or 0
        if size and size >= 0.1 * s.parts.u:
            what = f"{text(found.get('name'))} ({text(found.get('what'))}) held {format_bytes(size)}"
            return f"near the limit {what} (memory.blackbox)"
    return ""


def _peak(s: Signals) -> str:
    """The highest U."""
    of_host = " of the host" * (s.limit_at == "host")
    return (
        f"U (what cannot be given back) peaked at {of_limit(s, s.parts.u)}{of_host}, sampled"
        if s.parts.u
        else ""
    )


def _rise(s: Signals) -> str:
    """Last rise of U if it led to the highest U, else the highest U."""
    if s.rise is None or s.rise.to_bytes < 0.9 * s.parts.u:
        return _peak(s)
    rate = f", {format_bytes(s.rise.bytes / s.rise.seconds)}/s" if s.rise.seconds else ""
    amounts = f"{format_bytes(s.rise.from_bytes)} to {of_limit(s, s.rise.to_bytes)}"
    return f"U (what cannot be given back) rose from {amounts} in its last {s.rise.seconds:.3g} s{rate}"


def _parts(s: Signals) -> str:
    """Composition of U when it was highest."""
    own, mapped = s.workers, s.shared.mapped_by
    low, high = format_bytes(own.smallest_bytes), format_bytes(own.largest_bytes)
    known = {
        "anon of the main process": s.parts.main,
        f"anon of {own.count} children ({low} to {high} each)": own.own_bytes,
        "copied since a fork": own.copied_bytes,
        "of others in the cgroup": s.neighbours.held_bytes,
        f"shared memory, mapped by {mapped} process{'es' * (mapped != 1)}": s.shared.held_bytes,
        "page tables": s.parts.page_tables,
        "the kernel's own": s.parts.kernel - s.parts.page_tables,
        "files locked in memory": s.parts.locked,
    }
    least = max(1 << 20, 0.05 * s.parts.u)
    parts = [f"{format_bytes(amount)} {name}" for name, amount in known.items() if amount >= least]
    return f"at its peak U was {', '.join(parts)} (memory.ring)" if parts else ""


def _gpu(s: Signals) -> str:
    if s.gpu is None:
        return ""
    amounts = {
        "asked for": s.gpu.asked_bytes, "free": s.gpu.free_bytes, "tensors": s.gpu.allocated_bytes,
        "idle in torch's pool": s.gpu.unallocated_bytes, "other processes": s.gpu.others_bytes or None,
        "device": s.gpu.total_bytes,
    }  # fmt: skip
    known = [f"{name} {format_bytes(amount)}" for name, amount in amounts.items() if amount is not None]
    where = "in that message" if s.error.kind == "gpu_message" else "at the last stage (memory.jsonl)"
    return f"{where}: {', '.join(known)}" if len(known) > 1 else ""


# Slurm's accounting


def _oom_rows(s: Signals) -> str:
    job = s.facts.job
    rows = [*s.slurm.out_of_memory[:4], *([job.row] if job and job.row not in s.slurm.out_of_memory else [])]
    return ", ".join(str(row) for row in rows if row.state) + f" ({s.slurm.source})" if s.slurm.source else ""


def _row(s: Signals) -> str:
    row = s.slurm.ended_by
    if row is None:
        return ""
    who = f" by user {row.cancelled_by}" if row.cancelled_by else ""
    why = f", {row.reason}" if row.reason else ""
    known = row.elapsed_s and row.timelimit_s
    ran = f"; it had run {row.elapsed_s:.0f} of {row.timelimit_s:.0f} s" if known else ""
    return f"{row}{who}{why} ({s.slurm.source}){ran}"


def _other_tasks(s: Signals) -> str:
    """Which task of an array is explained, and another."""
    slurm, job = s.facts.slurm, s.facts.job
    others = [each.row.job for each in slurm.last_starts if each is not job] if slurm else []
    if job is None or not others or (slurm and job.row.job == slurm.job_id):
        return ""
    return f"this is {job.row.job}, of {len(others) + 1} tasks ({s.slurm.source}); another: --job {others[0]}"


def _earlier_starts(s: Signals) -> str:
    rows = [str(job.row) for job in s.facts.slurm.earlier[-4:]] if s.facts.slurm else []
    return f"started before: {', '.join(rows)} (sacct --duplicates)" if rows else ""


LINES: dict[str, tuple[Text, ...]] = {
    "above": ("{limit_above}, the run's own limit was never met (outcome.json)",),
    "cache_before_kill": ("at the last sample {parts.cache_before_kill:B} in use was page cache "
                          "(memory.ring)",),
    "copies": ("the cgroup has {workers.copied_bytes:B} of anon more than its processes grew by: copies of "
               "pages that were shared at a fork (memory.ring)",),
    "counters": (_counters,),
    "ended": ("{how_it_ended}",),
    "error": (first("{gpu.line} ({facts.log_name})", "{error.line} ({facts.log_name})"),),
    "file": ("page cache rose with it, {cache_per_anon:.1f} bytes for each byte or more (memory.ring)",),
    "gpu": (_gpu,),
    "leak": ("{leak.line}",),
    "machine": (lambda s: "no cgroup has a limit below the machine's memory (outcome.json)"
                if s.limit_at == "host" else "",
                lambda s: f"the machine had only {format_bytes(s.host_left_bytes)} left "
                "(memory.ring)" if s.host_is_short else ""),
    "max_rss": ("MaxRSS of {slurm.own.id}: {slurm.max_rss_bytes:B} of {slurm.asked_bytes:B} requested "
                "({slurm.source})",
                lambda s: max_rss_meaning(s.facts.slurm) if s.facts.slurm and s.slurm.max_rss_bytes else ""),
    "neighbours": ("of the last {neighbours.rise_bytes:B} that U rose, {neighbours.of_rise_bytes:B} were not "
                   "this run's (memory.ring)",),
    "own_error": ("{how_it_ended}", _reason, "its last error: {error.exception} ({facts.log_name})"),
    "parts": (_parts,),
    "peak": (_peak,),
    "polled": ("RSS was up to {slurm.rss_bytes:B}, {slurm.asked_bytes:B} were requested ({slurm.source})",),
    "requested": ("the job had requested {slurm.job_asked_bytes:B}",
                  lambda s: f"the step had requested {format_bytes(s.slurm.asked_bytes)} of it"
                  if 0 < s.slurm.asked_bytes < s.slurm.job_asked_bytes else ""),
    "sender": (_sender, _reason),
    "shm": (lambda s: f"/dev/shm: up to {format_bytes(s.shared.used_bytes)} of "
                      f"{format_bytes(s.shared.total_bytes)} "
            f"in use, {format_bytes(s.shared.before_bytes)} before it began (memory.ring, outcome.json)"
            if s.shared.full >= 0.5 or s.shared.used_bytes > s.shared.before_bytes + (8 << 20) else "",),
    "slurm_notes": (_other_tasks, _earlier_starts),
    "slurm_oom_rows": (_oom_rows,),
    "slurm_row": (_row,),
    "stack": (_stack, _largest),
    "stage": (_stage,),
    "swap": ("swap rose by {swap_rose_bytes:B} while it ran (memory.ring)",),
    "u": (_rise,),
    "time": (when(lambda s: s.timed_out_by == "cpu limit", "it used up its CPU time (RLIMIT_CPU)"),
             when(lambda s: s.exit_code == 124, "exit code 124 is what timeout(1) returns")),
}  # fmt: skip
"""Each line is said if its amounts are known."""
