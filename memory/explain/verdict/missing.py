"""Evidence that does not exist, and how to have it next time."""

from __future__ import annotations

from memory.explain.signals import Signals

_RUN = "python -m memory run --output DIR -- COMMAND"


def missing(s: Signals) -> tuple[str, ...]:
    """Lines, the most useful first; nothing that a run in such a state cannot have yet."""
    facts, evidence = s.facts, s.facts.evidence
    is_over, number = not facts.is_running, facts.newest.number
    watched = bool(facts.outcome or facts.samples)
    is_damaged = any(line.startswith("outcome.json") for line in evidence.damage)
    printed = [name for name, path in evidence.log_files.items() if path.is_file()]
    known = {
        f"no outcome.json and no memory.ring: it had no supervisor. Next time: {_RUN}": is_over
        and not watched and not is_damaged,
        "no outcome.json: its supervisor was killed with it, or could not write": is_over
        and watched and not facts.outcome and not is_damaged,
        "no samples: memory.ring is missing, or not of this attempt": facts.outcome and not facts.samples,
        "no counter of kills could be read: a kill for memory looks like any other SIGKILL": is_over
        and watched and s.kills == "no counter",
        f"{' and '.join(printed)}: empty. It printed nothing, or to elsewhere" if printed else
        "no log: its messages are not known. Next time: python -m memory run --log ..., or --log FILE":
        facts.exit_code not in (None, 0) and not facts.log.strip(),
        f"the limit of its cgroup {s.unseen_cgroup}: no file of it could be read": s.unseen_cgroup,
        "no limit is known: how close it was is not known either": facts.peak_bytes is not None
        and facts.limit_bytes is None and not s.unseen_cgroup,
        f"outcome.json is of an earlier attempt, not of the last one, {number}: left out": evidence.outcome
        and not facts.outcome,
        f"status.json is of an earlier attempt, not of the last one, {number}: left out": evidence.status
        and not facts.status,
    }  # fmt: skip
    lines = (line for line, holds in known.items() if holds)
    return (*evidence.damage, *lines, *(facts.slurm.notes if facts.slurm is not None else ()))
