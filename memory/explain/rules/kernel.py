"""Ends by the kernel's hand: a cgroup's limit, the machine's memory, a limit above."""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.quantities import format_bytes
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.table_row import (
    BEFORE_END,
    CERTAIN,
    COUNTED,
    LIKELY,
    NO,
    UNKNOWN,
    TableRow,
    at_most,
    if_so,
)
from memory.explain.signals import Signals
from memory.explain.verdict.advice import cheapest_first, more_memory
from memory.explain.verdict.evidence_lines import counters_line, ended_line, place
from memory.explain.verdict.explanation import Advice

_NEAR = 0.95
_FAR = 0.8


def _is_ours(s: Signals) -> str:
    """Confidence that a process of this run was killed: others may be in the cgroup."""
    if s.victim_is_named:
        return CERTAIN
    if s.signal == "SIGKILL":
        return CERTAIN if s.signal_is_certain or s.victim_vanished_then or not s.lived_on_s else LIKELY
    if s.victim_vanished_then:
        return LIKELY
    is_crowded = s.limit_at != "cgroup" or s.neighbours.share > 0.5 or s.neighbours.one_went
    return UNKNOWN if is_crowded else LIKELY


def _by_machine(s: Signals) -> str:
    if s.says("kernel_host"):
        return at_most(CERTAIN if s.has_run else LIKELY, CERTAIN if s.says("kernel_host").is_sure else LIKELY)
    if s.says("kernel_cgroup") or s.lived_on_s or (s.kills != "counted" and s.signal != "SIGKILL"):
        return NO
    if s.limit_at == "host" and s.kills == "counted":
        return at_most(CERTAIN if s.host_is_short else LIKELY, _is_ours(s))
    is_far = 0 < s.peak_share < _FAR and s.limit_at == "cgroup"
    if s.host_is_short and (s.limit_at == "host" or (is_far and not s.limit_hits)):
        return LIKELY
    return at_most(LIKELY, _is_ours(s)) if s.kills == "counted" and is_far and s.counted_no_oom else NO


def _in_cgroup(s: Signals) -> str:
    return NO if not s.killed_at_limit or _by_machine(s) else _is_ours(s)


def _says_in_cgroup(s: Signals) -> str:
    where = f" of {place(s.facts.limit_at)}" if s.limit_at == "cgroup" and s.facts else ""
    limit = f" ({format_bytes(s.limit_bytes)}{where})" if s.limit_bytes else where
    at = f"at the cgroup's limit{limit}"
    if s.never_at_limit:
        at = (
            f"at a limit below that of {format_bytes(s.limit_bytes)}, which was never met: most likely "
            "the limit "
        )
        at += "of a cgroup inside it (a container, systemd-run)"
    after = ". The run itself ended with 0, so the work of that process is missing" if s.end == "ok" else ""
    return f"The kernel killed {s.victim or 'a process'} for memory {at}{after}"


def _uncounted(s: Signals) -> str:
    if s.kills == "counted" or not s.was_killed or s.limit_at != "cgroup" or s.is_unwatched:
        return NO
    share = max(s.last_share, s.peak_share) if s.end == "lost" else s.last_share
    if share >= _NEAR:
        return UNKNOWN if s.kills == "none" and s.end != "lost" else LIKELY
    return if_so(s.end == "lost" and s.would_have_met_it, UNKNOWN)


def _named_in_log(s: Signals) -> str:
    said = s.says("kernel_cgroup")
    if not said or (s.lived_on_s and not said.is_sure) or s.kernel_named or s.kills == "none":
        return NO
    return at_most(CERTAIN if s.has_run else LIKELY, CERTAIN if said.is_sure else LIKELY)


def _uncounted_lines(s: Signals) -> Iterable[str | None]:
    yield "nothing was written about how it ended" if s.end == "lost" else None


def _machine_lines(s: Signals) -> Iterable[str | None]:
    log = s.facts.log_name if s.facts else ""
    if said := s.says("kernel_host"):
        yield f"the kernel's log: {said.line[:200]} ({log})"
    elif s.limit_at == "host":
        yield "no cgroup has a limit below the machine's memory (outcome.json)"
    elif s.host_is_short and s.facts:
        left = format_bytes(s.facts.least_available_bytes or 0)
        yield f"the machine had only {left} left, while the cgroup was far from its limit (memory.ring)"
    else:
        yield "a kill was counted, but the cgroup never met its limit (outcome.json: oom, max)"


def _says_machine(s: Signals) -> str:
    who = s.victim or ("a process of this run" if s.has_run else "a process")
    return f"The machine ran out of memory, and the kernel killed {who}"


def _alone_on_machine(facts: RunFacts) -> tuple[Advice, ...]:
    return (
        Advice("request the whole machine, so that others cannot fill it", "--exclusive"),
        Advice("or type the same command again: the cause was another job"),
    )


ROWS = (
    TableRow(
        "machine_filled_by_others",
        "the machine was short of memory (the kernel's log, counters, MemAvailable), and the run held less "
        "than half",
        lambda s: _by_machine(s) if 0 < s.peak_of_host < 0.5 else NO,
        lambda s: f"{_says_machine(s)}, though others held most of it",
        "oom_host", "neighbours", (*COUNTED, *BEFORE_END), _machine_lines, _alone_on_machine, "seen",
    ),
    TableRow(
        "machine_full",
        "the machine was short of memory, and the run held most of it, or its share is not known",
        lambda s: NO if 0 < s.peak_of_host < 0.5 else _by_machine(s),
        _says_machine,
        "oom_host", None, (*COUNTED, *BEFORE_END), _machine_lines, cheapest_first, "seen",
    ),
    TableRow(
        "killed_as_group",
        "oom_group_kill rose (memory.oom.group=1)",
        lambda s: if_so(s.group_kills, CERTAIN),
        "The kernel killed every process of the cgroup together (memory.oom.group=1)",
        "oom_cgroup", None, BEFORE_END,
        lambda s: (f"oom_group_kill rose by {s.group_kills} (outcome.json, memory.ring)",),
        cheapest_first, "seen",
    ),
    TableRow(
        "killed_in_cgroup",
        "oom_kill rose while the run lived, and the main process did not live on for seconds after it",
        _in_cgroup, _says_in_cgroup,
        "oom_cgroup", None, (*COUNTED, *BEFORE_END), advice=cheapest_first, victim="seen",
    ),
    TableRow(
        "named_to_supervisor",
        "no counter could be read, and the kernel's log named a process of the run to its supervisor",
        lambda s: if_so(s.kernel_named == "cgroup", CERTAIN),
        lambda s: f"The kernel killed {s.victim} for memory, at the limit of a cgroup that could not be read",
        "oom_cgroup", None, (ended_line, *BEFORE_END),
        lambda s: (f"the kernel's log: {s.facts.kernel_named_victim if s.facts else ''} (outcome.json)",),
        cheapest_first, "seen",
    ),
    TableRow(
        "named_to_supervisor_host",
        "the same, and the kernel's log names no cgroup",
        lambda s: if_so(s.kernel_named == "host", CERTAIN),
        lambda s: f"The kernel killed {s.victim} for memory: the machine had none left",
        "oom_host", None, (ended_line, *BEFORE_END),
        lambda s: (f"the kernel's log: {s.facts.kernel_named_victim if s.facts else ''} (outcome.json)",),
        cheapest_first, "seen",
    ),
    TableRow(
        "named_in_kernel_log",
        "no counter says otherwise, and a log of the kernel that was given names a process of the run",
        _named_in_log,
        lambda s: f"The kernel's log says that it killed {s.says('kernel_cgroup').name or 'process'} "
        f"({s.says('kernel_cgroup').pid}) at a cgroup's limit",
        "oom_cgroup", None, BEFORE_END,
        lambda s: (f"{s.says('kernel_cgroup').line[:240]} ({s.facts.log_name if s.facts else ''})",),
        cheapest_first, "seen",
    ),
    TableRow(
        "killed_above",
        "a cgroup above counted kills, the run's own none, and the run ended by SIGKILL",
        lambda s: if_so(s.parent_killed and s.signal == "SIGKILL"),
        lambda s: f"The kernel killed processes for memory in {_above(s)}, above the run's own cgroup",
        "oom_cgroup", "neighbours", (ended_line, *BEFORE_END), lambda s: (_above_line(s),), more_memory,
        "seen",
    ),
    TableRow(
        "killed_uncounted",
        "SIGKILL, or no word of its end, with U at the limit (95%), and no counter of kills could be read",
        _uncounted,
        lambda s: "It was killed with U at the limit: most likely by the kernel, for memory"
        + ". Its supervisor was killed before it, or with it (memory.oom.group=1)" * (s.end == "lost"),
        "oom_cgroup", None, (ended_line, counters_line, *BEFORE_END), _uncounted_lines, cheapest_first,
        "seen",
    ),
)  # fmt: skip


def _above(s: Signals) -> str:
    path, limit, _ = s.facts.parents[0] if s.facts and s.facts.parents else ("a cgroup", 0, 0)
    return f"{path}, at its limit of {format_bytes(limit)}" if limit else path


def _above_line(s: Signals) -> str:
    path, _, kills = s.facts.parents[0] if s.facts and s.facts.parents else ("a cgroup", 0, 0)
    return f"{path} counted {kills} kills while it ran, the run's own cgroup none (outcome.json)"
