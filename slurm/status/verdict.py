"""What a rule says of a run, and the words that several of them use."""

from __future__ import annotations

from dataclasses import dataclass

from slurm.status.case import Case


@dataclass(frozen=True)
class Verdict:
    """rule: which of PRECEDENCE said it. source: of what evidence, in a word or two."""

    state: str
    reason: str | None
    source: str = ""
    rule: str = ""


def host_of_launcher(case: Case) -> str:
    """Its job is HOST:PID:STARTED_AT."""
    array = case.known.array
    return (array.job_id or "").partition(":")[0] if array is not None else ""


def error_of(case: Case) -> str | None:
    try:
        return case.last_words()
    except Exception:
        return None


def one_line(text: str, most: int = 1) -> str:
    """The first lines that are not blank, in one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:most])
