"""Of what a job wrote, the line that tells most: a missing module, an error of Slurm's, of Python's."""

from __future__ import annotations

import os
import re
from pathlib import Path

from experiment_utils.safe_read import read_end
from memory.explain.evidence.log_patterns import patterns
from slurm.records.submissions import SLURM
from slurm.status.run_evidence import Known

_TAIL_BYTES = 32 << 10
_TELLING = (
    re.compile(r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError): .+"),
    re.compile(r"^.*The following module\(s\) are unknown: .+"),
    re.compile(r"^.*(?:Unable to locate a modulefile|ModuleCmd_Load).+"),
    re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit): .+"),
    re.compile(r"^.*(?:[Cc]ommand not found|No such file or directory|Permission denied|No space left).*"),
    re.compile(r"^error: .+"),
    *patterns("slurm_poll"),
    re.compile(r"^(?:slurmstepd|srun|sbatch|slurm_script): error: .+"),
)
"""The likeliest cause first; of each the last line that is of its kind."""
_BY_SLURM = re.compile(r"^(?:slurmstepd|srun): ")
_ENDED_BY_SLURM = re.compile(r"CANCELLED AT \S+ DUE TO .*")
_SPOOLED = re.compile(r"^\S*/slurm_script:")
_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


def job_files(known: Known) -> list[Path]:
    """What the run's job wrote, by submitit's names (`%A_%a_%t_log.err`, `%j_%t_log.err`): stderr first; of a
    plain job the script's output.
    """
    if known.submission is None or known.array is None or known.place is None:
        return []
    folder = known.submission.folder / "submitit"
    job = known.job if known.submission.launcher == SLURM else None
    if job is None:
        return sorted(known.submission.folder.glob("*.txt"))
    found = [
        *folder.glob(f"{job}_[0-9]*_log.err"),
        *folder.glob(f"{job}_[0-9]*_log.out"),
        *folder.glob(f"{job}_log.*"),
    ]
    plain = known.submission.output_of(job)
    if not found and os.access(plain, os.R_OK):
        return [plain]
    return sorted(found, key=lambda path: (path.suffix != ".err", path.name))


def last_words(known: Known) -> str | None:
    """Of the run's log while it spoke, else of its job's files; None where there are none.

    The last line of a run that spoke, and was gone then, is of its work and tells nothing.
    """
    texts = [tail(path) for path in job_files(known)]
    if known.state is None:
        return telling_line(_without_others("\n".join(texts[::-1]), known))
    return _known_to_tell([tail(known.folder / "log.txt"), *texts])


def _without_others(text: str, known: Known) -> str:
    """Less the lines that name a file of another run of its job: they are of that one."""
    tasks = known.array.tasks if known.array is not None and known.array.how != "each" else []
    others = {run for task in tasks for run in task} - {known.folder.name}
    return "\n".join(line for line in text.splitlines() if others.isdisjoint(line.split("/")))


def oom_words(known: Known) -> str:
    """What Slurm wrote of a kill for memory into its job's stderr; empty of a job whose files tell of several
    runs or starts, of which it names none.
    """
    if known.array is None or known.array.how != "each" or known.own_job != known.job or known.own_restarts:
        return ""
    return _said(known, patterns("slurm_oom"))


def cut_off_words(known: Known) -> str:
    """What Slurm wrote of a step whose row tells of root's scancel: a node went away under it, or slurmd's
    poll of RSS ended it, which adds up what the row has of each rank alone.
    """
    if known.array is None or known.array.how != "each" or known.own_job != known.job:
        return ""
    return _said(
        known,
        (*patterns("slurm_node_failed"), *patterns("slurm_poll")),
        of_last_start=bool(known.own_restarts),
    )


def _said(known: Known, patterns: tuple[re.Pattern[str], ...], *, of_last_start: bool = False) -> str:
    """of_last_start: without what Slurm ended, and all before it: of that it has a row."""
    texts = [tail(path) for path in job_files(known)]
    if of_last_start:
        texts = [_ENDED_BY_SLURM.split(text)[-1] for text in texts]
    lines = (line for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if any(pattern.search(line) for pattern in patterns))


def last_line(known: Known) -> str | None:
    """The last of what its job wrote, stderr first, without what Slurm says of an end: of a start that ended
    before the run, whose words follow on those of starts before it.
    """
    for path in job_files(known):
        lines = [line.strip() for line in tail(path).splitlines() if line.strip()]
        while lines and _BY_SLURM.match(lines[-1]) and "CANCELLED AT" not in lines[-1]:
            lines.pop()
        if lines and not _BY_SLURM.match(lines[-1]):  # else the start before it wrote last
            return _short(lines[-1])
    return None


def telling_line(text: str) -> str | None:
    """The line that tells most; the last one where none is known to tell."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _known_to_tell([text]) or (_short(lines[-1]) if lines else None)


def _known_to_tell(texts: list[str]) -> str | None:
    """texts: the one that tells most first."""
    lines = [line.strip() for text in texts[::-1] for line in text.splitlines()]
    for pattern in _TELLING:
        found = next((line for line in reversed(lines) if pattern.match(line)), None)
        if found is not None:
            return _short(found)
    return None


def _short(line: str) -> str:
    """Without the time before a line of the log. A shell names the script by its place in the folders of
    slurmd, which is gone with the job.
    """
    return _SPOOLED.sub("slurm_script:", _TIME.sub("", line))[:300]


def tail(path: Path, size: int = _TAIL_BYTES) -> str:
    """The end of a file; empty where it cannot be read."""
    try:
        return read_end(path, size).decode(errors="replace")
    except OSError:
        return ""
