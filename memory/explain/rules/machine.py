"""Deaths and kills that came from beside the run: the machine, its neighbours, a cgroup above."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.json_values import text
from experiment_utils.quantities import format_bytes
from memory.explain.advice import cheapest_first, more_memory
from memory.explain.facts import Facts
from memory.explain.finding import CONFIDENCES, Advice, Finding
from memory.explain.measured import u_of
from memory.explain.own_step import started_what_was_killed
from memory.explain.telling import (
    all_of,
    before_the_end,
    counters_line,
    ended_line,
    peak_of_limit,
    place,
    rise,
)
from memory.explain.testimony import by_kernel
from memory.explain.victims import how_surely_ours, neighbours_share, of_others, victim_of

_FAR = 0.8
_LOW_HOST = 0.05


def killed_by_host(facts: Facts) -> Iterator[Finding]:
    """The machine itself had no memory left: not this job's limit."""
    why = was_the_machine(facts)
    if why is None:
        return
    evidence, confidence = why
    if facts.kills:
        confidence = min(confidence, how_surely_ours(facts, victim_of(facts)), key=CONFIDENCES.index)
    own, total = facts.peak_bytes or 0, facts.host_bytes
    neighbours = total is not None and own < 0.5 * total
    advice = (
        Advice("a machine of one's own, so that others cannot fill it", "--exclusive"),
        Advice("or type the same command again: the cause was beside this run"),
    )
    yield Finding(
        rule="killed_by_host",
        says="The machine ran out of memory, and the kernel killed "
        + (
            f"{victim}"
            if (victim := victim_of(facts))
            else "a process of this run"
            if facts.outcome or facts.samples
            else "a process"
        )
        + (", though others held most of it" if neighbours else ""),
        confidence=confidence,
        verdict="oom_host",
        cause="neighbours" if neighbours else None,
        victim=victim,
        evidence=all_of(evidence, counters_line(facts), ended_line(facts), *before_the_end(facts)),
        advice=advice if neighbours else cheapest_first(facts),
    )


def was_the_machine(facts: Facts) -> tuple[str, str] | None:
    """What says that the machine's memory was the limit that was met, and how surely."""
    said = by_kernel(facts)
    if said is not None:
        of_machine = said.match["what"].startswith("Out of memory")
        told = f"the kernel's log: {said.match[0].strip()[:200]} ({facts.log_name})"
        # a log alone names a process, and not whose it was
        is_known = bool(facts.outcome or facts.samples or facts.slurm)
        return (told, said.at_most("certain" if is_known else "likely")) if of_machine else None
    if facts.outlived_kills or (not facts.kills and facts.signal != "SIGKILL"):
        return None
    left, total = facts.least_available_bytes, facts.host_bytes
    low = left is not None and left < (_LOW_HOST * total if total else 512 << 20)
    if facts.limit_at == "host" and facts.kills:
        return (
            "no cgroup has a limit below the machine's memory (outcome.json)",
            "certain" if low else "likely",
        )
    far = facts.peak_share is not None and facts.peak_share < _FAR and facts.limit_at != "host"
    if low and (facts.limit_at == "host" or (far and not facts.limit_hits)):
        told = f"the machine had only {format_bytes(left or 0)} left, its cgroup was far from its "
        "limit (memory.ring)"
        return (told, "likely")
    if facts.kills and far and facts.counted("max") == 0 and facts.counted("oom") == 0:
        return ("a kill was counted, but the cgroup never met its limit (outcome.json: oom, max)", "likely")
    return None


def parent_limit(facts: Facts) -> Iterator[Finding]:
    """Kills higher up the tree, or a limit there: all that runs below it counts."""
    own = text(facts.outcome.get("cgroup_path"))
    is_above = facts.limit_at.startswith("/") and own.startswith(facts.limit_at.rstrip("/") + "/")
    if not facts.kills and facts.parents and not facts.has_ended_well:
        path, limit, kills = facts.parents[0]
        told = f"{path} counted {kills} kills while it ran, the run's own cgroup none (outcome.json)"
        yield Finding(
            rule="parent_limit",
            says=f"Processes were killed for memory in {path}, above the run's own cgroup"
            + (f", at its limit of {format_bytes(limit)}" if limit else ""),
            confidence="likely" if facts.signal == "SIGKILL" else "possible",
            verdict="oom_cgroup" if facts.signal == "SIGKILL" else None,
            cause="neighbours",
            victim=victim_of(facts) if facts.signal == "SIGKILL" else None,
            evidence=all_of(told, ended_line(facts), *before_the_end(facts)),
            advice=more_memory(facts),
        )
    elif facts.met_limit and is_above:
        yield Finding(
            rule="parent_limit",
            says=f"The limit stands at {place(facts.limit_at)}, above the run's own cgroup {place(own)}: all "
            "that runs there counts",
            confidence="certain",
            evidence=(
                f"the limit is that of the parent {place(facts.limit_at)}, the run is in "
                f"{place(own)} (outcome.json)",
            ),
        )


def neighbours(facts: Facts) -> Iterator[Finding]:
    """The cgroup is full, but not of this run; or what rose at last was beside it."""
    share, late = neighbours_share(facts), _late_rise(facts)
    grew = late is not None and share > 0.2 and late[1] > 0.6 * late[0]
    if (share < 0.5 and not grew) or not facts.near_limit or facts.limit_at == "host":
        return
    if started_what_was_killed(facts):
        return
    yield Finding(
        rule="neighbours",
        says=f"{100 * share:.0f}% of what counted against the limit belonged to no process of this run"
        + (", and that is what grew at last" if grew else ""),
        confidence="likely",
        cause="neighbours",
        evidence=all_of(
            f"at its peak U was {peak_of_limit(facts)}, of which this run's processes held "
            f"{100 * (1 - share):.0f}% (memory.ring)",
            f"of the last {format_bytes(late[0])} that U rose, {format_bytes(late[1])} were not this run's "
            "(memory.ring)"
            if late and grew
            else None,
        ),
        advice=(Advice("start it in a job, or a container, of its own"), *more_memory(facts)),
    )


def _late_rise(facts: Facts) -> tuple[int, int] | None:
    """In the upper half of its last rise: by how much U rose, and what others hold of it."""
    found = rise(facts)
    if found is None:
        return None
    known = [
        (u, others)
        for sample in facts.samples
        if found.begin_s <= sample.time_s <= found.end_s
        and (u := u_of(sample)) is not None
        and (others := of_others(facts, sample)) is not None
    ]
    upper = [pair for pair in known if pair[0] >= found.from_bytes + found.bytes / 2]
    if len(upper) < 2 or upper[-1][0] <= upper[0][0]:
        return None
    return upper[-1][0] - upper[0][0], max(0, upper[-1][1] - upper[0][1])
