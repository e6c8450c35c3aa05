"""Evidence lines that several rows show."""

from __future__ import annotations

from experiment_utils.json_values import mapping, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.rise import last_rise
from memory.explain.evidence.run_facts import RunFacts

_LONGEST_PATH = 48


def place(path: str) -> str:
    """Path of a cgroup; of a long one its end, by which jobs differ."""
    return path if len(path) <= _LONGEST_PATH else ".../" + "/".join(path.split("/")[-2:])


def of_limit(facts: RunFacts, amount: int, limit: int | None = None) -> str:
    """`31.9 GB of 32.0 GB (100%)`: of that limit, else of the one at the end."""
    limit = limit or facts.limit_bytes
    if not limit:
        return format_bytes(amount)
    return f"{format_bytes(amount)} of {format_bytes(limit)} ({100 * amount / limit:.0f}%)"


def peak_of_limit(facts: RunFacts) -> str:
    """The highest U, and the limit of that moment."""
    return of_limit(facts, facts.peak_bytes or 0, facts.peak_limit_bytes)


def peak_line(facts: RunFacts) -> str | None:
    if facts.peak_bytes is None:
        return None
    where = "" if facts.limit_at in ("", "host") else f" at {place(facts.limit_at)}"
    whose = " of the host's memory" if facts.limit_at == "host" else ""
    return (
        f"U, the memory that cannot be given back, was seen at {peak_of_limit(facts)}{whose}{where} (sampled)"
    )


def limit_line(facts: RunFacts) -> str | None:
    """Limits one after the other, if the limit changed."""
    if facts.limit_changed_s is None:
        return None
    limits = ", ".join(format_bytes(limit) for _, limit in facts.limits[-4:])
    share = f"; U came to {100 * facts.peak_share:.0f}% of that of its moment" if facts.peak_share else ""
    return f"the limit changed while it ran: {limits}{share} (memory.ring)"


def stage_line(facts: RunFacts) -> str | None:
    """The stage in which it ended, and since when."""
    record = facts.stage
    if record is None:
        return f"it was in stage {facts.stage_name} (status.json)" if facts.stage_name else None
    step = unsigned(mapping(record.get("facts")).get("step"))
    name = text(record.get("stage")) + (f" step {step:,}" if step else "")
    if record.get("event") != "begin":
        return f"the last stage that ended was {name} (memory.jsonl)"
    began_s, ended_s = seconds(record.get("time_s")), seconds(facts.outcome.get("ended_s"))
    is_known = began_s and ended_s and ended_s >= began_s
    since = f", {(ended_s or 0) - (began_s or 0):.1f} s before the end" if is_known else ""
    return f"stage {name} had begun{since} and did not end (memory.jsonl)"


def rise_line(facts: RunFacts) -> str | None:
    """The last rise of U under the last limit."""
    found = last_rise([point for point in facts.u_series if point[0] >= (facts.limit_changed_s or 0.0)])
    source = "memory.ring" if facts.samples else "memory.jsonl"
    return f"before the end U rose from {found} ({source})" if found else None


def failed_row_line(facts: RunFacts) -> str | None:
    """Slurm's row of a job that it counts as failed."""
    job = facts.slurm.job if facts.slurm else None
    return f"{job.row} ({facts.slurm.source})" if facts.slurm and job and job.row.state == "FAILED" else None


def stack_line(facts: RunFacts) -> str | None:
    found = facts.frames
    users = next((frame for frame in found if frame.is_users), found[0] if found else None)
    return f"near the limit it was at {users} ({facts.black_boxes[-1].name})" if users else None


def counters_line(facts: RunFacts) -> str | None:
    """Kills that the kernel counted."""
    if facts.kills is None:
        return None
    kills = f"{facts.kills or 'no'} kill{'s' * (facts.kills > 1)} for memory"
    more = f", the limit was met {facts.limit_hits:,} times" if facts.limit_hits else ""
    source = "outcome.json" if facts.outcome.get("counters_after") else "memory.ring"
    return f"the kernel counted {kills} in the cgroup while it ran{more} ({source})"


def ended_line(facts: RunFacts) -> str | None:
    return facts.how_it_ended
