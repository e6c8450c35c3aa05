"""Deaths for memory that the kernel or the run itself tells of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from experiment_utils.json_values import mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.advice import cheapest_first, more_memory, no_workers, run_with_us, smaller_steps
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding, Victim
from memory.explain.rules.machine import was_the_machine
from memory.explain.telling import all_of, before_the_end, counters_line, ended_line, place, rise
from memory.explain.testimony import Said, by_kernel, by_the_run
from memory.explain.trend import Rise
from memory.explain.victims import how_surely_ours, victim_of
from memory.explain.wordings import (
    ASKED_FOR,
    HEAPS,
    MEMORY_ERROR,
    NO_THREAD,
    OWN_WORDS,
    TOO_MANY_MAPS,
    amount_bytes,
    last_match,
)

AT_LIMIT = 0.95
_HEAP_SHARE = 0.75
"""Of what the job may have: a virtual machine holds more than its heap."""


def killed_in_cgroup(facts: Facts) -> Iterator[Finding]:
    """The counter of kills rose: the kernel's own word. It also counts kills for the whole machine."""
    if not facts.kills or facts.outlived_kills or was_the_machine(facts) is not None:
        return
    victim = victim_of(facts)
    confidence = how_surely_ours(facts, victim)
    where = f" of {place(facts.limit_at)}" if facts.limit_at not in ("", "host") else ""
    limit = f" ({format_bytes(facts.limit_bytes)}{where})" if facts.limit_bytes else where
    who = str(victim) if victim else "a process"
    at = f"at the cgroup's limit{limit}"
    if facts.met_another_limit:
        at = f"at a limit that is not that of {format_bytes(facts.limit_bytes or 0)}, which was never met: "
        at += "that of a cgroup below it, most likely (a container's, systemd-run's)"
    swallowed = ", and yet the run itself ended well: whatever that process was to do is missing"
    yield Finding(
        rule="killed_in_cgroup",
        says=f"The kernel killed {who} for memory {at}{swallowed * facts.has_ended_well}",
        confidence=confidence,
        verdict="oom_cgroup",
        victim=victim,
        evidence=all_of(counters_line(facts), ended_line(facts), *before_the_end(facts)),
        advice=cheapest_first(facts),
    )


def killed_uncounted(facts: Facts) -> Iterator[Finding]:
    """SIGKILL, or no word at all, with U at the limit, where no counter of kills can be had."""
    died = facts.signal == "SIGKILL" or facts.vanished
    if facts.kills or not died or facts.limit_at == "host" or facts.unwatched_s is not None:
        return
    last = facts.u_series[-1][1] / facts.limit_bytes if facts.u_series and facts.limit_bytes else 0.0
    on_the_way = False
    if max(last, (facts.peak_share or 0.0) if facts.vanished else last) < AT_LIMIT:
        found = rise(facts)
        on_the_way = facts.vanished and found is not None and _would_have_met_it(facts, found)
        if not on_the_way:
            return
    counted_none = facts.kills == 0 and not facts.vanished
    group = (
        " So was its supervisor: before it, or with it (memory.oom.group=1 kills all of the cgroup at once)."
    )
    yield Finding(
        rule="killed_uncounted",
        says="It was killed with U at the limit: most likely by the kernel, for memory."
        + group * facts.vanished,
        confidence="possible" if counted_none or on_the_way else "likely",
        verdict="oom_cgroup",
        victim=victim_of(facts),
        evidence=all_of(
            ended_line(facts), "nothing was written of how it ended" if facts.vanished else None,
            counters_line(facts), *before_the_end(facts),
        ),
        advice=cheapest_first(facts),
    )  # fmt: skip


def _would_have_met_it(facts: Facts, found: Rise) -> bool:
    """Within a second of the last sample, at the rate of the last rise, if that lasted to the end."""
    at, u = facts.u_series[-1]
    rate = found.bytes_per_s or 0.0
    return found.end_s >= at - 0.5 and u + rate >= (facts.limit_bytes or math.inf) and u > found.from_bytes


def killed_as_group(facts: Facts) -> Iterator[Finding]:
    """memory.oom.group=1: one process over the limit, and all of the cgroup is killed."""
    if not facts.group_kills:
        return
    yield Finding(
        rule="killed_as_group",
        says="The kernel killed every process of the cgroup at once (memory.oom.group=1)",
        confidence="certain",
        verdict="oom_cgroup",
        victim=victim_of(facts),
        evidence=all_of(
            f"oom_group_kill rose by {facts.group_kills} (outcome.json, memory.ring)", *before_the_end(facts)
        ),
        advice=cheapest_first(facts),
    )


def named_by_kernel(facts: Facts) -> Iterator[Finding]:
    """The kernel's log, where it is in the evidence, names the victim."""
    if (found := _named_to_the_supervisor(facts)) is not None:
        yield found
        return
    said = by_kernel(facts)
    if said is None or not said.match["what"].startswith("Memory cgroup"):
        return
    pid, name = unsigned(int(said.match["pid"][:12])), said.match["name"] or ""
    main = unsigned(facts.outcome.get("pid"))
    if facts.outlived_kills and pid != main:
        return
    yield Finding(
        rule="named_by_kernel",
        says=f"The kernel's log says that it killed {name or 'process'} ({pid}) at a cgroup's limit",
        confidence=said.at_most("certain" if main is not None or facts.kills else "likely"),
        verdict="oom_cgroup",
        victim=Victim(main is not None and pid == main, pid, name),
        evidence=all_of(f"{said.match[0].strip()[:240]} ({facts.log_name})", *before_the_end(facts)),
        advice=cheapest_first(facts),
    )


def _named_to_the_supervisor(facts: Facts) -> Finding | None:
    """It read the kernel's log while the run lived, where no counter of kills could be read."""
    victim, told = victim_of(facts), facts.kernel_named_victim
    if not told or victim is None:
        return None
    of_cgroup = "Memory cgroup" in told
    return Finding(
        rule="named_to_the_supervisor",
        says=f"The kernel killed {victim} for memory, "
        + (
            "at the limit of a cgroup that could not be seen from there"
            if of_cgroup
            else "as the machine ran out of it"
        ),
        confidence="certain",
        verdict="oom_cgroup" if of_cgroup else "oom_host",
        victim=victim,
        evidence=all_of(
            f"the kernel's log: {told} (outcome.json)", ended_line(facts), *before_the_end(facts)
        ),
        advice=cheapest_first(facts),
    )


def memory_error(facts: Facts) -> Iterator[Finding]:
    """An allocation was refused, and the program said so: a limit of address space, or no overcommit."""
    said = by_the_run(facts, MEMORY_ERROR)
    limits = {
        name: unsigned(mapping(facts.outcome.get("rlimits")).get(name)) for name in ("as_bytes", "data_bytes")
    }
    limits_known = isinstance(facts.outcome.get("rlimits"), dict)
    words = {"as_bytes": "RLIMIT_AS (ulimit -v)", "data_bytes": "RLIMIT_DATA (ulimit -d)"}
    standing = [f"{words[name]} is {format_bytes(limit)}" for name, limit in limits.items() if limit]
    by_thread = by_the_run(facts, NO_THREAD) if said is None and standing else None
    said = said or by_thread
    if said is None:
        return
    heap = next((its for pattern, its in HEAPS.items() if re.search(pattern, said.line)), None)
    if heap is not None:
        yield _own_heap(facts, said, *heap)
        return
    wanted = _asked_for(said.line)
    own_words = OWN_WORDS.search(said.line) is not None and not standing
    too_many_maps = TOO_MANY_MAPS.search(said.line) is not None
    why = (
        f"because {' and '.join(standing)}"
        if standing
        else "by the program's own words; what refused it is not known"
        if own_words
        else "and no rlimit is known: too many maps of shared tensors (vm.max_map_count), or no overcommit"
        if too_many_maps
        else "and no rlimit is known: see vm.overcommit_memory"
    )
    killed = facts.signal in ("SIGKILL", "SIGTERM", "SIGINT")
    is_over = bool(facts.exit_code or facts.state == "failed")
    surely = "certain" if is_over and not by_thread and not own_words else "likely"
    # where an rlimit was short, more memory for the job helps nothing
    smaller = [*smaller_steps(facts), *no_workers(facts)]
    advice = smaller if standing else [*cheapest_first(facts, need_bytes=_need(facts, wanted))]
    if not standing and limits_known and facts.limit_at != "host":
        # the limit of a cgroup refuses nothing: what goes beyond it is killed
        others = "what refuses memory here: overcommit, the number of maps or of threads"
        advice = [*smaller, Advice(others, "sysctl vm.overcommit_memory vm.max_map_count; ulimit -a")]
    if too_many_maps and not standing:
        maps = "each shared tensor is a map of its own: keep fewer of them, or raise the number of maps"
        advice = [Advice(maps, "sysctl vm.max_map_count; sysctl -w vm.max_map_count=1048576")]
    if standing:
        advice.insert(0, Advice("lift the limit of the process", "ulimit -v unlimited; ulimit -d unlimited"))
    yield Finding(
        rule="memory_error",
        says=f"An allocation{f' of {format_bytes(wanted)}' if wanted else ''} was refused, {why}",
        confidence="possible" if killed else said.at_most(surely),
        verdict="memory_error",
        cause="rlimit" if standing else None,
        victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.exit_code else None,
        evidence=all_of(
            f"{said.line} ({facts.log_name})", ended_line(facts),
            f"{' and '.join(standing)} (outcome.json)" if standing else None, *before_the_end(facts),
        ),
        advice=tuple(advice),
    )  # fmt: skip


def _own_heap(facts: Facts, said: Said, whose: str, option: str, most_mb: int) -> Finding:
    """A virtual machine's limit of its own: neither the kernel nor the job refused anything."""
    limit = facts.limit_bytes
    room_mb = most_mb if limit is None else int(_HEAP_SHARE * limit) >> 20
    has_room = facts.peak_bytes is None or room_mb << 20 > facts.peak_bytes
    larger = Advice("a larger heap, below what the job may have", option.format(mb=min(most_mb, room_mb)))
    killed = facts.signal in ("SIGKILL", "SIGTERM", "SIGINT")
    is_over = bool(facts.exit_code or facts.state == "failed")
    return Finding(
        rule="memory_error",
        says=f"{whose} came to the limit of its own heap, which is neither the kernel's nor the job's",
        confidence="possible" if killed else said.at_most("certain" if is_over else "likely"),
        verdict="memory_error",
        cause="rlimit",
        victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.exit_code else None,
        evidence=all_of(f"{said.line} ({facts.log_name})", ended_line(facts), *before_the_end(facts)),
        advice=(larger,) if has_room else more_memory(facts),
    )


def nothing_known(facts: Facts) -> Iterator[Finding]:
    """No word of how it ended."""
    if facts.has_evidence and not facts.vanished:
        return
    if facts.vanished:
        says = (
            "It ended without a word, and so did its supervisor: killed before it, or all at once, or the "
            "machine went down"
            if facts.samples
            else "It ended without a word: it was killed, or the machine went down"
        )
        if facts.unwatched_s is not None:
            says = "How it ended is not known: its supervisor was killed, and it went on, for "
            says += f"{facts.unwatched_s:.0f} s at least"
        if facts.records and not (facts.samples or facts.state or facts.open_stages):
            says = "How it ended is not known: nobody watched it. Every stage that it began also ended"
        yield Finding(
            rule="nothing_known",
            says=says,
            confidence="possible",
            verdict="unknown",
            evidence=before_the_end(facts),
            advice=() if facts.samples else (run_with_us(),),
        )
    else:
        says = "There is no evidence here of any run"
        yield Finding("nothing_known", says, "certain", verdict="unknown", advice=(run_with_us(),))


def _asked_for(line: str) -> int | None:
    match = last_match(ASKED_FOR, line)
    if match is None:
        return None
    plain = match["bytes"] or match["rust"]
    return unsigned(int(plain[:18])) if plain else amount_bytes(match["amount"], match["unit"])


def _need(facts: Facts, wanted: int | None) -> int | None:
    return None if wanted is None else (facts.peak_bytes or 0) + wanted
