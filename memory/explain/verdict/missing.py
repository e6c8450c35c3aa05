"""Evidence that does not exist, and how to have it next time."""

from __future__ import annotations

from experiment_utils.json_values import unsigned
from memory.explain.evidence.run_facts import RunFacts
from memory.record.evidence import Evidence

_RUN = "python -m memory run --output DIR -- COMMAND"


def missing(facts: RunFacts) -> tuple[str, ...]:
    """Lines, the most useful first; nothing that a run in such a state cannot have yet."""
    evidence, found = facts.evidence, []
    is_over = not facts.is_running
    is_damaged = any(line.startswith("outcome.json") for line in evidence.damage)
    if not (facts.outcome or facts.samples) and is_over and not is_damaged:
        found.append(f"no outcome.json and no memory.ring: it had no supervisor. Next time: {_RUN}")
    elif not facts.outcome and is_over and not is_damaged:
        found.append("no outcome.json: its supervisor was killed with it, or could not write")
    elif not facts.samples:
        found.append("no samples: memory.ring is missing, or not of this attempt")
    if (facts.outcome or facts.samples) and facts.kills is None and is_over:
        found.append("no counter of kills could be read: a kill for memory looks like any other SIGKILL")
    if facts.exit_code not in (None, 0) and not facts.log.strip():
        printed = [name for name, path in evidence.log_files.items() if path.is_file()]
        empty = f"{' and '.join(printed)}: empty. It printed nothing, or to elsewhere"
        no_log = (
            "no log: its messages are not known. Next time: python -m memory run --log ..., or --log FILE"
        )
        found.append(empty if printed else no_log)
    if facts.unseen_cgroup:
        found.append(f"the limit of its cgroup {facts.unseen_cgroup}: no file of it could be read there")
    elif facts.peak_bytes is not None and facts.limit_bytes is None:
        found.append("no limit is known: how close it was is not known either")
    found += _of_earlier_attempts(facts, evidence)
    return (*evidence.damage, *found, *(facts.slurm.notes if facts.slurm is not None else ()))


def _of_earlier_attempts(facts: RunFacts, evidence: Evidence) -> list[str]:
    found = []
    files = (
        ("outcome.json", evidence.outcome, facts.outcome),
        ("status.json", evidence.status, facts.status),
    )
    for name, given, kept in files:
        if given and not kept:
            number = unsigned(given.get("attempt"))
            which = f"attempt {number}" if number not in (None, facts.attempt) else "an earlier attempt"
            found.append(f"{name} is of {which}, not of the last one, {facts.attempt}: left out")
    return found
