"""Lines of evidence that several rules tell in the same words."""

from __future__ import annotations

from experiment_utils.json_values import mapping, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.facts import Facts
from memory.explain.trend import Rise, last_rise

_LONGEST_PATH = 48
_WORTH, _FULL, _MUCH_CACHE = 0.15, 0.9, 0.4
"""Of the limit."""


def place(path: str) -> str:
    """A cgroup's path; of a long one its end, which is what tells jobs apart."""
    return path if len(path) <= _LONGEST_PATH else ".../" + "/".join(path.split("/")[-2:])


def of_limit(facts: Facts, amount: int, limit: int | None = None) -> str:
    """`31.9 GB of 32.0 GB (100%)`: of that limit, else of the one at the end."""
    limit = limit or facts.limit_bytes
    if not limit:
        return format_bytes(amount)
    return f"{format_bytes(amount)} of {format_bytes(limit)} ({100 * amount / limit:.0f}%)"


def peak_of_limit(facts: Facts) -> str:
    """The same of the highest U, and the limit of that moment."""
    return of_limit(facts, facts.peak_bytes or 0, facts.peak_limit_bytes)


def peak_line(facts: Facts) -> str | None:
    if facts.peak_bytes is None:
        return None
    where = "" if facts.limit_at in ("", "host") else f" at {place(facts.limit_at)}"
    whose = " of the host's memory" if facts.limit_at == "host" else ""
    amount = peak_of_limit(facts)
    return f"U, the memory that cannot be given back, was seen at {amount}{whose}{where} (sampled)"


def limit_line(facts: Facts) -> str | None:
    """Where that did not stay the same."""
    if facts.limit_changed_s is None:
        return None
    told = ", ".join(format_bytes(limit) for _, limit in facts.limits[-4:])
    share = f"; U came to {100 * facts.peak_share:.0f}% of what stood" if facts.peak_share else ""
    return f"the limit changed while it ran: {told}{share} (memory.ring)"


def stage_line(facts: Facts) -> str | None:
    """The stage it ended in, and since when."""
    record = facts.stage
    if record is None:
        return f"it was in stage {facts.stage_name} (status.json)" if facts.stage_name else None
    step = unsigned(mapping(record.get("facts")).get("step"))
    name = text(record.get("stage")) + (f" step {step:,}" if step else "")
    if record.get("event") != "begin":
        return f"the last stage that ended was {name} (memory.jsonl)"
    began_s, ended_s = seconds(record.get("time_s")), seconds(facts.outcome.get("ended_s"))
    since = (
        f", {ended_s - began_s:.1f} s before the end" if began_s and ended_s and ended_s >= began_s else ""
    )
    return f"stage {name} had begun{since} and did not end (memory.jsonl)"


def rise(facts: Facts) -> Rise | None:
    """Of U, to its top; under another limit that is another story."""
    since_s = facts.limit_changed_s or 0.0
    return last_rise([point for point in facts.u_series if point[0] >= since_s])


def rise_line(facts: Facts) -> str | None:
    found = rise(facts)
    source = "memory.ring" if facts.samples else "memory.jsonl"
    return f"before the end U rose from {found} ({source})" if found else None


def failed_row_line(facts: Facts) -> str | None:
    """Slurm's row of a job that it counts as failed."""
    job = facts.slurm.job if facts.slurm else None
    return f"{job.row} ({facts.slurm.source})" if facts.slurm and job and job.row.state == "FAILED" else None


def stack_line(facts: Facts) -> str | None:
    found = facts.frames
    if not found:
        return None
    users = next((frame for frame in found if frame.is_users), found[0])
    return f"near the limit it stood at {users} ({facts.black_boxes[-1].name})"


def before_the_end(facts: Facts) -> tuple[str, ...]:
    """How high, how fast, in which stage, at which line."""
    lines = (peak_line(facts), limit_line(facts), rise_line(facts), stage_line(facts), stack_line(facts))
    return tuple(filter(None, lines))


def cache_at_the_kill(facts: Facts) -> str | None:
    """A line, where page cache filled the limit at the last look before a kill, and U was far from it: then
    either U rose since, or the cache was locked.
    """
    killed_s = facts.kill_time_s
    before = [s for s in facts.samples if killed_s is None or s.time_s < killed_s]
    limit = facts.limit_bytes
    if not facts.kills or not before or not limit:
        return None
    usage, cache = before[-1].usage_bytes or 0, before[-1].cache_bytes or 0
    if usage < _FULL * limit or cache < _MUCH_CACHE * limit:
        return None
    told = f"at the last look {format_bytes(cache)} of the {format_bytes(usage)} in use"
    return f"{told} was page cache (memory.ring)"


def counters_line(facts: Facts) -> str | None:
    """What the kernel counted."""
    if facts.kills is None:
        return None
    kills = (
        "no kill for memory"
        if not facts.kills
        else f"{facts.kills} kill{'s' * (facts.kills != 1)} for memory"
    )
    hits = facts.limit_hits
    more = f", the limit was met {hits:,} times" if hits else ""
    source = "outcome.json" if facts.outcome.get("counters_after") else "memory.ring"
    return f"the kernel counted {kills} in the cgroup while it ran{more} ({source})"


def ended_line(facts: Facts) -> str | None:
    return facts.how_it_ended


def all_of(*lines: str | None) -> tuple[str, ...]:
    return tuple(line for line in lines if line)


def is_worth(facts: Facts, amount: int) -> bool:
    """Enough to be the cause of a death: a part of the limit, or of a machine's memory."""
    return amount > (_WORTH * facts.limit_bytes if facts.limit_bytes else 256 << 20)
