"""What evidence is not there, and how to have it next time."""

from __future__ import annotations

from experiment_utils.json_values import unsigned
from memory.evidence import Evidence
from memory.explain.facts import Facts

_RUN = "python -m memory run --output DIR -- COMMAND"


def missing(facts: Facts) -> tuple[str, ...]:
    """Lines, the most useful first; none of what a run in such a state cannot have yet."""
    evidence = facts.evidence
    found = []
    supervised = bool(facts.outcome or facts.samples)
    if not supervised and not facts.is_running and not _is_damaged(evidence, "outcome.json"):
        found.append(f"no outcome.json and no memory.ring: nobody watched it. Next time: {_RUN}")
    elif not facts.outcome and not facts.is_running and not _is_damaged(evidence, "outcome.json"):
        found.append("no outcome.json: its supervisor was killed with it, or could not write")
    elif not facts.samples:
        found.append("no samples: memory.ring is missing, or not of this attempt")
    if supervised and facts.kills is None and not facts.is_running:
        found.append(
            "no counter of kills could be read: a kill for memory cannot be told from another SIGKILL"
        )
    if facts.exit_code not in (None, 0) and not facts.log.strip():
        # with --log there is a file of what it printed, also where that is nothing
        printed = [name for name, path in evidence.log_files.items() if path.is_file()]
        found.append(
            f"nothing stands in {' and '.join(printed)}: it printed nothing, or to elsewhere"
            if printed
            else "no log: what it said is not known. Next time: python -m memory run --log ..., or --log FILE"
        )
    if facts.unseen_cgroup:
        found.append(
            f"the limit of its cgroup {facts.unseen_cgroup}: no file of it could be seen from where it ran"
        )
    elif facts.peak_bytes is not None and facts.limit_bytes is None:
        found.append("no limit is known: how close it was cannot be said")
    for name, given, kept in (
        ("outcome.json", evidence.outcome, facts.outcome),
        ("status.json", evidence.status, facts.status),
    ):
        of = unsigned(given.get("attempt"))
        if given and not kept:
            told = f"attempt {of}" if of not in (None, facts.attempt) else "an earlier attempt"
            found.append(f"{name} is of {told}, not of the last one, {facts.attempt}: left aside")
    if facts.slurm is not None:
        found += facts.slurm.notes
    return (*evidence.damage, *found)


def _is_damaged(evidence: Evidence, name: str) -> bool:
    """It is there, and cannot be read: that is told already, and by whom it was not written is not known."""
    return any(line.startswith(name) for line in evidence.damage)
