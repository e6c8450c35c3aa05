"""Slurm's accounting of a job: the job's row and the rows of its steps.

An OOM kill under `srun` leaves the job FAILED 1:0, and only the step's row says OUT_OF_MEMORY 0:125. If the
script continues after it, the job's row even says COMPLETED 0:0. If sacct is missing, slow or empty,
`scontrol show job` answers while slurmctld remembers the job (MinJobAge, five minutes by default).

Sources: sacct(1), scontrol(1), of 22.05 to 25.11.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "State", "ExitCode", "DerivedExitCode", "MaxRSS", "ReqMem", "AllocTRES",
    "Elapsed", "Timelimit", "Start", "End", "NodeList", "Reason", "Restarts",
)  # fmt: skip
"""Columns requested from sacct; a version that lacks one is asked again without it."""
_SCONTROL_NAMES = {
    "JobIDRaw": "JobId", "State": "JobState", "Elapsed": "RunTime", "Timelimit": "TimeLimit",
    "Start": "StartTime", "End": "EndTime",
}  # fmt: skip
"""Names of sacct's columns in `scontrol show job`, where they differ."""
TIMEOUT_S = 10.0
_JOB = re.compile(r"^(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?)(?:\.(?P<step>.+))?$")
_INVALID_FIELD = re.compile(r"[Ii]nvalid field requested: \"?(\w+)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_YEAR_S = 365 * 86400.0

NOT_OVER = 2
"""Badness of a job that waits or runs."""
_NOT_OVER = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT",
    "RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "",
)  # fmt: skip

Ask = Callable[[list[str], float], "Answer"]
"""Runs a command within this many seconds."""


@dataclass(frozen=True)
class Answer:
    """Result of a command: code 127 if it does not exist, 124 if it took too long."""

    code: int
    out: str = ""
    error: str = ""


@dataclass(frozen=True)
class Row:
    """One row of sacct, in bytes and seconds; None where it is blank."""

    job: str
    """`123`, `123_4`, `123+1`."""
    step: str | None
    """`batch`, `extern`, `0`, `0+1`; None on the job's own row."""
    state: str
    """One word, such as OUT_OF_MEMORY."""
    name: str = ""
    cancelled_by: str | None = None
    """A user's number."""
    exit_code: int | None = None
    exit_signal: int | None = None
    max_rss_bytes: int | None = None
    """Its meaning depends on the cluster (`memory.accounting.maxrss`)."""
    requested_bytes: int | None = None
    """--mem, of a node; of a step that of its srun."""
    elapsed_s: float | None = None
    timelimit_s: float | None = None
    start: str = ""
    """Text as printed; `moment` reads it."""
    end: str = ""
    nodes: str = ""
    reason: str = ""
    raw: str = ""
    """Slurm's own number of the job, which differs from `ARRAY_TASK`."""
    restarts: int | None = None
    """Number of requeues before."""

    @property
    def id(self) -> str:
        return self.job if self.step is None else f"{self.job}.{self.step}"

    @property
    def was_out_of_memory(self) -> bool:
        """Whether Slurm saw an OOM kill in the cgroup: the state, or its own signal 125 (SIG_OOM)."""
        return self.state == "OUT_OF_MEMORY" or self.exit_signal == 125

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" {self.exit_code}:{self.exit_signal or 0}"
        return f"{self.id} {self.state}{code}"


@dataclass(frozen=True)
class Job:
    """One start of a job: its row and its steps. A requeued job has several, the oldest first."""

    row: Row
    steps: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return (self.row, *self.steps)

    @property
    def is_over(self) -> bool:
        """Whether its own row says that it has ended."""
        return self.row.state not in _NOT_OVER

    @property
    def badness(self) -> int:
        """0: out of memory, in any step; 1: other bad ends; 2: not over; 3: completed."""
        if any(row.was_out_of_memory for row in self.rows):
            return 0
        return 3 if self.row.state == "COMPLETED" else 1 if self.is_over else NOT_OVER


@dataclass(frozen=True)
class SlurmFacts:
    """Answers of Slurm about one job id."""

    job_id: str
    jobs: tuple[Job, ...] = ()
    """Every task and every start."""
    source: str = ""
    """`sacct`, `scontrol show job`, or empty."""
    version: str = ""
    """`22.05.8`."""
    gather: str = ""
    """JobAcctGatherType; the next two are of slurm.conf as well."""
    gather_params: str = ""
    gather_every_s: float | None = None
    cgroup_plugin: str = ""
    notes: tuple[str, ...] = ()
    """Answers that are missing, and why."""
    step: str = ""
    """The step that was asked for, if any."""

    @property
    def job(self) -> Job | None:
        """The last start of the job that was asked for; of an array the first task that ended worst."""
        wanted = [job for job in self.jobs if job.row.job == self.job_id]
        if wanted:
            return wanted[-1]
        return min(self.last_starts, key=lambda job: job.badness, default=None)

    @property
    def last_starts(self) -> tuple[Job, ...]:
        """The last start of each task or component, in their order."""
        return tuple({job.row.job: job for job in self.jobs}.values())

    @property
    def earlier(self) -> tuple[Job, ...]:
        """Starts of the same job before the last, after which it was requeued."""
        last = self.job
        if last is None:
            return ()
        return tuple(job for job in self.jobs if job is not last and job.row.job == last.row.job)


def read_slurm(job_id: str, *, ask: Ask | None = None, timeout_s: float = TIMEOUT_S) -> SlurmFacts:
    """Ask sacct, then scontrol. Never raises: an answer that is missing is a note.

    Args:
        job_id: `123`, `123_4`, `123+1` or, for one step of it, `123.0`.
        ask: runs a command; tests pass recorded answers.
        timeout_s: of each command.
    """
    ask = ask or run_client
    wanted, _, step = job_id.strip().partition(".")
    if not _JOB.match(wanted):
        return SlurmFacts(job_id, notes=(f"{job_id!r} is no job id of Slurm",))
    notes: list[str] = []
    jobs, source = from_sacct(wanted, ask, timeout_s, notes), "sacct"
    if not jobs:
        jobs, source = from_scontrol(wanted, ask, timeout_s, notes), "scontrol show job"
    gathering = read_gathering(ask, timeout_s)
    return SlurmFacts(wanted, tuple(jobs), source if jobs else "", notes=tuple(notes), step=step, **gathering)


def read_gathering(ask: Ask, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Fields of SlurmFacts about how this Slurm counts memory, and if it kills by that; {}: unknown."""
    config = ask(["scontrol", "show", "config"], timeout_s)
    if config.code != 0:
        return {}
    settings = read_settings(config.out)
    every = settings.get("JobAcctGatherFrequency", "").split(",")[0].rpartition("=")[2]
    return {
        "version": settings.get("SLURM_VERSION", ""),
        "gather": settings.get("JobAcctGatherType", ""),
        "gather_params": settings.get("JobAcctGatherParams", "").replace("(null)", ""),
        "gather_every_s": to_seconds(every),
        "cgroup_plugin": settings.get("CgroupPlugin", ""),
    }


def parse_sacct(text: str) -> list[Job]:
    """Jobs in the output of `sacct --parsable2`, whatever its columns; other lines are ignored."""
    lines = [line.rstrip("\r\n").split("|") for line in text.splitlines() if "|" in line]
    header = next((at for at, line in enumerate(lines) if "JobID" in line), len(lines))
    groups: list[tuple[Row, list[Row]]] = []
    for line in lines[header + 1 :]:
        row = _row(dict(zip(lines[header], line, strict=False)))
        if row is None:
            continue
        if row.step is None:
            groups.append((row, []))
        elif groups and groups[-1][0].job == row.job:
            groups[-1][1].append(row)
        else:  # a step was asked for, or its job's row is missing
            groups.append((Row(row.job, None, ""), [row]))
    return [Job(row, tuple(steps)) for row, steps in sorted(groups, key=lambda group: group[0].start)]


def parse_scontrol(text: str) -> list[Job]:
    """Jobs in the output of `scontrol show job`, which has no steps."""
    rows = []
    for block in re.split(r"(?=\bJobId=)", text):
        values = dict(re.findall(r"(\w+(?:/\w+)?)=(\S*)", block))
        found = {name: values.get(_SCONTROL_NAMES.get(name, name), "") for name in FIELDS}
        task, array = values.get("ArrayTaskId", ""), values.get("ArrayJobId", "")
        found["JobID"] = f"{array}_{task}" if array and task.isdigit() else values.get("JobId", "")
        found["ReqMem"] = f"{values.get('MinMemoryNode', values.get('MinMemoryCPU', ''))}n"
        rows.append(_row(found))
    return [Job(row) for row in rows if row is not None]


def from_sacct(job_id: str, ask: Ask, timeout_s: float, notes: list[str]) -> list[Job]:
    """Ask sacct once, for one job or for several with commas between. Failures are added to `notes`."""
    fields = list(FIELDS)
    for _ in FIELDS:
        command = f"sacct --jobs {job_id} --duplicates --parsable2 --units=K --format={','.join(fields)}"
        answer = ask(command.split(), timeout_s)
        lacks = _INVALID_FIELD.search(answer.error)
        if answer.code == 0 or lacks is None or lacks[1] not in fields:
            break
        fields.remove(lacks[1])
    jobs = parse_sacct(answer.out) if answer.code == 0 else []
    if not jobs:
        failed = answer.code != 0 or "error:" in answer.error
        notes.append(why_not(answer, "sacct", timeout_s) if failed else f"sacct knows no job {job_id}")
    return jobs


def from_scontrol(job_id: str, ask: Ask, timeout_s: float, notes: list[str]) -> list[Job]:
    """Ask scontrol once, for one job or for the tasks of an array. Failures are added to `notes`."""
    answer = ask(["scontrol", "show", "job", job_id], timeout_s)
    if answer.code != 0:
        notes.append(why_not(answer, "scontrol", timeout_s))
        return []
    jobs = parse_scontrol(answer.out)
    if jobs:
        notes.append("from scontrol: without the steps' rows, where an OOM kill under srun would stand")
    return jobs


def why_not(answer: Answer, name: str, timeout_s: float) -> str:
    """Why a command gave no answer, as a note."""
    if answer.code == 127:
        return f"there is no {name} on this machine"
    if answer.code == 124:
        return f"{name} did not answer within {timeout_s:g} s"
    lines = answer.error.strip().splitlines() or ["it says nothing"]
    line = next((line for line in lines if "Parse error" in line), lines[-1])  # of slurm.conf, with its place
    return f"{name} failed with exit code {answer.code}: {line}"


_CLIENT_PREFIXES = ("SQUEUE_", "SACCT_", "SINFO_", "SACCTMGR_", "SCONTROL_", "SCANCEL_")
_PRINTING = {"SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_JSON", "SLURM_YAML"}


def client_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables, by default this process's, without those that change the output of Slurm's clients.

    With a user's SQUEUE_PARTITION, SQUEUE_USERS and similar ones a job that waits is not listed, and looks
    like one that has ended (squeue(1), ENVIRONMENT VARIABLES).
    """
    return {
        name: value
        for name, value in (os.environ if variables is None else variables).items()
        if not name.startswith(_CLIENT_PREFIXES) and name not in _PRINTING
    }


def lost_settings(variables: Mapping[str, str]) -> str | None:
    """Message for a SLURM_CONF that does not exist: clients search for minutes and do not say for what."""
    path = variables.get("SLURM_CONF")
    try:
        if not path or Path(path).is_file():
            return None
    except OSError:  # in a folder that is not open to us: Slurm has a message of its own
        return None
    return (
        f"SLURM_CONF={path}: there is no such file. Set it to the cluster's slurm.conf, or: unset SLURM_CONF"
    )


def run_client(command: list[str], timeout_s: float, environment: Mapping[str, str] | None = None) -> Answer:
    """Run a client command of Slurm without input. Never raises.

    Args:
        environment: by default `client_environment`.
    """
    environment = client_environment() if environment is None else environment
    wrong = lost_settings(environment)
    if wrong is not None and shutil.which(command[0]) is not None:
        return Answer(1, error=wrong)
    no_input: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "env": environment}
    try:
        done = subprocess.run(command, text=True, errors="replace", timeout=timeout_s, **no_input)
    except subprocess.TimeoutExpired:
        return Answer(124)
    except (OSError, ValueError) as error:
        return Answer(127, error=str(error))
    return Answer(done.returncode, done.stdout, done.stderr)


def _row(values: Mapping[str, str]) -> Row | None:
    def text(name: str) -> str:
        return values.get(name, "").strip()

    match = _JOB.match(text("JobID"))
    if match is None:
        return None
    state, _, by = text("State").partition(" by ")
    code, _, exit_signal = text("ExitCode").partition(":")
    resources = dict(one.partition("=")[::2] for one in text("AllocTRES").split(","))
    of_step = match["step"] and resources.get("mem")  # a step's ReqMem is its job's, or blank
    return Row(
        job=match["job"],
        step=match["step"],
        state=(state.split() or [""])[0].rstrip("+"),
        name=values.get("JobName", ""),
        cancelled_by=by.strip() or None,
        exit_code=_number(code),
        exit_signal=_number(exit_signal),
        max_rss_bytes=to_bytes(text("MaxRSS")),
        requested_bytes=_per_node(of_step or text("ReqMem"), text("NodeList")),
        elapsed_s=to_seconds(text("Elapsed")),
        timelimit_s=real_limit(to_seconds(text("Timelimit"))),
        start=values.get("Start", ""),
        end=values.get("End", ""),
        nodes=text("NodeList").replace("None assigned", ""),
        reason="" if text("Reason") in ("None", "(null)") else text("Reason"),
        raw=text("JobIDRaw").partition(".")[0],
        restarts=_number(text("Restarts")),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def count_nodes(listed: str) -> int:
    """Number of nodes in a list as Slurm writes it: `n1` 1, `n[1-3,07],gpu5` 5, an empty one 0."""
    count = 0
    for name in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", listed.strip()):
        inside = 1
        for ranges in re.findall(r"\[([^\]]*)\]", name):
            ends = [part.partition("-")[::2] for part in ranges.split(",")]
            known = [int(last) - int(first) + 1 for first, last in ends if first.isdigit() and last.isdigit()]
            inside *= max(1, sum(known) + len(ends) - len(known))
        count += inside
    return 0 if listed.strip() in ("", "None assigned", "(null)") else count


def _per_node(text: str, nodes: str) -> int | None:
    """ReqMem of one node: from 21.08 on it is of all nodes; before that, and in scontrol, of one."""
    found = to_bytes(text)
    if found is None or text.endswith(("n", "c")):
        return found
    return found // max(1, count_nodes(nodes))


def to_bytes(text: str) -> int | None:
    """Bytes of `22528K`, `200M`, `1.50G`; to 20.11 ReqMem ends with `n` (a node) or `c` (a CPU)."""
    match = re.match(r"^([\d.]+)([KMGTP]?)[nc]?$", text.strip())
    try:
        return int(float(match[1]) * _UNITS[match[2]]) if match else None
    except ValueError:
        return None


def to_seconds(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `02:03.5`, `30`; None for `UNLIMITED`, `Partition_Limit`, a blank."""
    days, _, clock = text.strip().rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
        total = sum(part * 60**place for place, part in enumerate(reversed(parts[-3:])))
        return total + 86400 * int(days or 0)
    except ValueError:
        return None


def moment(text: str) -> float | None:
    """Unix time of `1772445600` or, in local time, `2026-03-02T10:00:00`; None for `N/A`, `Unknown`."""
    text = text.strip()
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def real_limit(limit_s: float | None) -> float | None:
    """A job's time limit; None for a year, which slurmctld writes where there is none (its YEAR_MINUTES)."""
    return None if limit_s is None or limit_s >= _YEAR_S else limit_s


def read_settings(text: str) -> dict[str, str]:
    """Settings in lines of `Name = value`, as `scontrol show config` prints them."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
