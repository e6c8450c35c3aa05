"""The most useful line of what a job wrote: a missing module, an error of Slurm or of Python."""

from __future__ import annotations

import os
import re
from pathlib import Path

from experiment_utils.safe_read import read_end
from memory.explain.evidence.log_patterns import patterns
from slurm.records.submissions import SLURM
from slurm.status.run_evidence import RunEvidence

_TAIL_BYTES = 32 << 10
_USEFUL = (
    re.compile(r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError): .+"),
    re.compile(r"^.*The following module\(s\) are unknown: .+"),
    re.compile(r"^.*(?:Unable to locate a modulefile|ModuleCmd_Load).+"),
    re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit): .+"),
    re.compile(r"^.*(?:[Cc]ommand not found|No such file or directory|Permission denied|No space left).*"),
    re.compile(r"^error: .+"),
    *patterns("slurm_poll"),
    re.compile(r"^(?:slurmstepd|srun|sbatch|slurm_script): error: .+"),
)
"""The likeliest cause first; the last line of a kind counts."""
_ENDED_BY_SLURM = re.compile(r"CANCELLED AT \S+ DUE TO .*")
_SPOOLED = re.compile(r"^\S*/slurm_script:")
_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


def job_files(known: RunEvidence) -> list[Path]:
    """Output files of the run's job: stderr first, by submitit's names (`%A_%a_%t_log.err`, `%j_%t_log.err`).

    For a plain job it is the output of its script.
    """
    if known.submission is None or known.array is None or known.place is None:
        return []
    folder = known.submission.folder / "submitit"
    job = known.job if known.submission.launcher == SLURM else None
    if job is None:
        return sorted(known.submission.folder.glob("*.txt"))
    found = [*folder.glob(f"{job}_[0-9]*_log.[eo]*"), *folder.glob(f"{job}_log.*")]
    plain = known.submission.output_of(job)
    if not found and os.access(plain, os.R_OK):
        return [plain]
    return sorted(found, key=lambda path: (path.suffix != ".err", path.name))


def last_words(known: RunEvidence) -> str | None:
    """The most useful line of the run's log, or of its job's files; None without one.

    The last line in the log of a run that was killed is of its work, and says nothing of its end.
    """
    texts = [tail(path) for path in job_files(known)]
    if known.state is None:
        return useful_line(_without_others("\n".join(texts[::-1]), known))
    return _first_useful([tail(known.folder / "log.txt"), *texts])


def _without_others(text: str, known: RunEvidence) -> str:
    """The lines that name no file of another run of the same job."""
    tasks = known.array.tasks if known.array is not None and known.array.how != "each" else []
    others = {run for task in tasks for run in task} - {known.folder.name}
    return "\n".join(line for line in text.splitlines() if others.isdisjoint(line.split("/")))


def words_of_slurm(known: RunEvidence, *, with_oom: bool) -> str:
    """Lines of Slurm's daemons in the job's stderr: a lost node, a poll of RSS, an OOM kill (with_oom).

    Empty if that file is of several runs, since the lines name none of them. Of several starts only what
    follows the last line with which Slurm ended one counts, and no OOM kill, which leaves no such line.
    """
    if known.array is None or known.array.how != "each" or known.own_job != known.job:
        return ""
    restarts = known.stamp.restart if known.stamp is not None else 0
    kinds = ("slurm_node_failed", "slurm_poll", *(("slurm_oom",) if with_oom and not restarts else ()))
    texts = [tail(path) for path in job_files(known)]
    if restarts:
        texts = [_ENDED_BY_SLURM.split(text)[-1] for text in texts]
    wanted = [pattern for kind in kinds for pattern in patterns(kind)]
    lines = (line for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if any(pattern.search(line) for pattern in wanted))


def last_line(known: RunEvidence) -> str | None:
    """The most useful line that its job wrote after the last line with which Slurm ended a start of it."""
    texts = [_ENDED_BY_SLURM.split(tail(path))[-1] for path in job_files(known)]
    return useful_line("\n".join(texts[::-1]))


def useful_line(text: str) -> str | None:
    """The most useful line; the last one if no line is known to be useful."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _first_useful([text]) or (_short(lines[-1]) if lines else None)


def _first_useful(texts: list[str]) -> str | None:
    """texts: the most useful one first."""
    lines = [line.strip() for text in texts[::-1] for line in text.splitlines()]
    for pattern in _USEFUL:
        found = next((line for line in reversed(lines) if pattern.match(line)), None)
        if found is not None:
            return _short(found)
    return None


def _short(line: str) -> str:
    """The line without its time, and without slurmd's folder for the script, which is gone with the job."""
    return _SPOOLED.sub("slurm_script:", _TIME.sub("", line))[:300]


def tail(path: Path, size: int = _TAIL_BYTES) -> str:
    """The end of a file; empty if it cannot be read."""
    try:
        return read_end(path, size).decode(errors="replace")
    except OSError:
        return ""
