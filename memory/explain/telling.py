"""Lines of evidence that several rules tell in the same words."""

from __future__ import annotations

from memory.explain.facts import Facts
from memory.explain.stacks import frames
from memory.explain.trend import Rise, last_rise
from memory.explain.values import mapping, number, seconds, text
from memory.format import format_bytes

_LONGEST_PATH = 48
_WORTH = 0.15
"""Of the limit."""


def place(path: str) -> str:
    """A cgroup's path; of a long one its end, which is what tells jobs apart."""
    return path if len(path) <= _LONGEST_PATH else ".../" + "/".join(path.split("/")[-2:])


def of_limit(facts: Facts, amount: int) -> str:
    """`31.9 GB of 32.0 GB (100%)`."""
    if not facts.limit_bytes:
        return format_bytes(amount)
    percent = f"{100 * amount / facts.limit_bytes:.0f}%"
    return f"{format_bytes(amount)} of {format_bytes(facts.limit_bytes)} ({percent})"


def peak_line(facts: Facts) -> str | None:
    if facts.peak_bytes is None:
        return None
    where = "" if facts.limit_at in ("", "host") else f" at {place(facts.limit_at)}"
    whose = " of the host's memory" if facts.limit_at == "host" else ""
    amount = of_limit(facts, facts.peak_bytes)
    return f"U, the memory that cannot be given back, was seen at {amount}{whose}{where} (sampled)"


def stage_line(facts: Facts) -> str | None:
    """The stage it ended in, and since when."""
    record = facts.stage
    if record is None:
        return f"it was in stage {facts.stage_name} (status.json)" if facts.stage_name else None
    step = number(mapping(record.get("facts")).get("step"))
    name = text(record.get("stage")) + (f" step {step:,}" if step else "")
    if record.get("event") != "begin":
        return f"the last stage that ended was {name} (memory.jsonl)"
    began_s, ended_s = seconds(record.get("time_s")), seconds(facts.outcome.get("ended_s"))
    since = (
        f", {ended_s - began_s:.1f} s before the end" if began_s and ended_s and ended_s >= began_s else ""
    )
    return f"stage {name} had begun{since} and did not end (memory.jsonl)"


def rise(facts: Facts) -> Rise | None:
    """Of U, to its top."""
    return last_rise(facts.u_series)


def rise_line(facts: Facts) -> str | None:
    found = rise(facts)
    source = "memory.ring" if facts.samples else "memory.jsonl"
    return f"before the end U rose from {found} ({source})" if found else None


def stack_line(facts: Facts) -> str | None:
    found = frames(facts.black_boxes)
    if not found:
        return None
    users = next((frame for frame in found if frame.is_users), found[0])
    return f"near the limit it stood at {users} ({facts.black_boxes[-1].name})"


def before_the_end(facts: Facts) -> tuple[str, ...]:
    """How high, how fast, in which stage, at which line."""
    return tuple(filter(None, (peak_line(facts), rise_line(facts), stage_line(facts), stack_line(facts))))


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
