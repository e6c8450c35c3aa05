"""What Slurm's accounting knows of a job: its row *and* those of its steps.

An OOM kill under `srun` leaves the job FAILED 1:0, and only the step's row says OUT_OF_MEMORY 0:125; in a
script that goes on after it the job's row even says COMPLETED 0:0. Where sacct is missing, slow or empty,
`scontrol show job` answers while slurmctld still remembers the job (MinJobAge, five minutes by default).

Sources: sacct(1), scontrol(1), of 22.05 to 25.11.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "State", "ExitCode", "DerivedExitCode", "MaxRSS", "ReqMem", "AllocTRES",
    "Elapsed", "Timelimit", "Start", "End", "NodeList", "Reason", "Restarts",
)  # fmt: skip
"""What sacct is asked for; a version that lacks one is asked again without it."""
TIMEOUT_S = 10.0
_JOB = re.compile(r"^(?P<job>\d+)(?:_(?P<task>\d+|\[[^\]]*\]))?(?:\+(?P<component>\d+))?(?:\.(?P<step>.+))?$")
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


@dataclass(frozen=True)
class Answer:
    """Of a command: code 127 where there is none of that name, 124 where it took too long."""

    code: int
    out: str = ""
    error: str = ""


@dataclass(frozen=True)
class Row:
    """One row of sacct. In bytes and seconds; None where it is blank.

    job: `123`, `123_4`, `123+1`. step: `batch`, `extern`, `0`, `0+1`; None on the job's own row. state: one
    word, such as OUT_OF_MEMORY. cancelled_by: a user's number. exit_code, exit_signal: of `0:125`.
    max_rss_bytes: see `maxrss`. requested_bytes: --mem, of a node; of a step its srun's. start, end: printed.
    raw: Slurm's own number of the job, which a task of an array has beside `ARRAY_TASK`.
    restarts: how often it was requeued before.
    """

    job: str
    step: str | None
    state: str
    name: str = ""
    cancelled_by: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    max_rss_bytes: int | None = None
    requested_bytes: int | None = None
    elapsed_s: float | None = None
    timelimit_s: float | None = None
    start: str = ""
    end: str = ""
    nodes: str = ""
    reason: str = ""
    raw: str = ""
    restarts: int | None = None

    @property
    def id(self) -> str:
        return self.job if self.step is None else f"{self.job}.{self.step}"

    @property
    def was_out_of_memory(self) -> bool:
        """Slurm's word for an OOM kill in the cgroup: the state, or signal 125 (SIG_OOM of its own)."""
        return self.state == "OUT_OF_MEMORY" or self.exit_signal == 125

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" {self.exit_code}:{self.exit_signal or 0}"
        return f"{self.id} {self.state}{code}"


@dataclass(frozen=True)
class Job:
    """One start of a job: its row and its steps. A requeued one has several, the oldest first."""

    row: Row
    steps: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return (self.row, *self.steps)

    @property
    def is_over(self) -> bool:
        """By its own row."""
        return self.row.state not in _NOT_OVER

    @property
    def badness(self) -> int:
        """0: ended for memory, in whatever step; then other bad ends, what has not ended, what ended well."""
        if any(row.was_out_of_memory for row in self.rows):
            return 0
        return 3 if self.row.state == "COMPLETED" else 1 if self.is_over else NOT_OVER


@dataclass(frozen=True)
class SlurmFacts:
    """jobs: every task and every start, as told. source: `sacct`, `scontrol show job`, or empty. version:
    `22.05.8`. gather: JobAcctGatherType. gather_params, gather_every_s: of slurm.conf. notes: what could not
    be had. step: the one of it that was asked for, if any.
    """

    job_id: str
    jobs: tuple[Job, ...] = ()
    source: str = ""
    version: str = ""
    gather: str = ""
    gather_params: str = ""
    gather_every_s: float | None = None
    cgroup_plugin: str = ""
    notes: tuple[str, ...] = field(default=())
    step: str = ""

    @property
    def job(self) -> Job | None:
        """The last start of the job that was asked for; of an array the first task that ended worst."""
        wanted = [job for job in self.jobs if job.row.job == self.job_id]
        if wanted:
            return wanted[-1]
        return min(self.last_starts, key=lambda job: job.badness, default=None)

    @property
    def last_starts(self) -> tuple[Job, ...]:
        """Of each task or component, in their order."""
        return tuple({job.row.job: job for job in self.jobs}.values())

    @property
    def earlier(self) -> tuple[Job, ...]:
        """Starts of the same job before the last: it was requeued."""
        last = self.job
        return tuple(
            job for job in self.jobs if last is not None and job is not last and job.row.job == last.row.job
        )


def read_slurm(job_id: str, *, ask: Ask | None = None, timeout_s: float = TIMEOUT_S) -> SlurmFacts:
    """Ask sacct, then scontrol. Never raises: what cannot be had is a note.

    Args:
        job_id: `123`, `123_4`, `123+1` or, for one step of it, `123.0`.
        ask: runs a command within so many seconds; tests hand in recorded answers.
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
    return SlurmFacts(
        job_id=wanted,
        jobs=tuple(jobs),
        source=source if jobs else "",
        notes=tuple(notes),
        step=step,
        **read_gathering(ask, timeout_s),
    )


def read_gathering(ask: Ask, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Fields of SlurmFacts: how this Slurm counts memory, and whether it kills by that; none: not known."""
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
    """Of `--parsable2` with a header, whatever its columns; a line that is no row is passed over."""
    lines = [line.rstrip("\r\n") for line in text.splitlines() if "|" in line]
    header = next((at for at, line in enumerate(lines) if "JobID" in line.split("|")), None)
    if header is None:
        return []
    names = lines[header].split("|")
    groups: list[tuple[Row, list[Row]]] = []
    for line in lines[header + 1 :]:
        row = _row(dict(zip(names, line.split("|"), strict=False)))
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
    """Of `scontrol show job`, one job or several; it tells no steps."""
    found = []
    for block in re.split(r"(?=\bJobId=)", text):
        values = dict(re.findall(r"(\w+(?:/\w+)?)=(\S*)", block))
        task, array = values.get("ArrayTaskId", ""), values.get("ArrayJobId", "")
        job = f"{array}_{task}" if array and task.isdigit() else values.get("JobId", "")
        row = _row(
            {
                "JobID": job,
                "JobIDRaw": values.get("JobId", ""),
                "Restarts": values.get("Restarts", ""),
                "State": values.get("JobState", ""),
                "JobName": values.get("JobName", ""),
                "ExitCode": values.get("ExitCode", ""),
                "DerivedExitCode": values.get("DerivedExitCode", ""),
                "ReqMem": f"{values.get('MinMemoryNode', values.get('MinMemoryCPU', ''))}n",
                "Elapsed": values.get("RunTime", ""),
                "Timelimit": values.get("TimeLimit", ""),
                "Start": values.get("StartTime", ""),
                "End": values.get("EndTime", ""),
                "NodeList": values.get("NodeList", ""),
                "Reason": values.get("Reason", ""),
            }
        )
        if row is not None:
            found.append(Job(row))
    return found


def from_sacct(job_id: str, ask: Ask, timeout_s: float, notes: list[str]) -> list[Job]:
    """One call, for one job or for several with commas between; what is wrong is added to `notes`."""
    fields = list(FIELDS)
    for _ in FIELDS:
        command = [
            "sacct",
            "--jobs",
            job_id,
            "--duplicates",
            "--parsable2",
            "--units=K",
            f"--format={','.join(fields)}",
        ]
        answer = ask(command, timeout_s)
        lacks = _INVALID_FIELD.search(answer.error)
        if answer.code == 0 or lacks is None or lacks[1] not in fields:
            break
        fields.remove(lacks[1])
    if answer.code != 0:
        notes.append(why_not(answer, "sacct", timeout_s))
        return []
    jobs = parse_sacct(answer.out)
    if not jobs:
        failed = "error:" in answer.error
        notes.append(why_not(answer, "sacct", timeout_s) if failed else f"sacct knows no job {job_id}")
    return jobs


def from_scontrol(job_id: str, ask: Ask, timeout_s: float, notes: list[str]) -> list[Job]:
    """One call, for one job or for the tasks of an array; what is wrong is added to `notes`."""
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
    words = next(
        (line for line in lines if "Parse error" in line), lines[-1]
    )  # of slurm.conf, with its place
    return f"{name} failed with exit code {answer.code}: {words}"


_OF_CLIENTS = ("SQUEUE_", "SACCT_", "SINFO_", "SACCTMGR_", "SCONTROL_", "SCANCEL_")
_OF_PRINTING = {"SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_JSON", "SLURM_YAML"}


def client_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of these variables, by default this process's, those that a client command may see.

    What a user likes to see of the queue is not asked for here: with SQUEUE_PARTITION, SQUEUE_USERS and their
    like a job that waits is not told, and looks like one that has ended (squeue(1), ENVIRONMENT VARIABLES).
    """
    variables = os.environ if variables is None else variables
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(_OF_CLIENTS) and name not in _OF_PRINTING
    }


def lost_settings(variables: Mapping[str, str]) -> str | None:
    """Words for a SLURM_CONF that leads nowhere: clients look for minutes then, and do not say for what."""
    path = variables.get("SLURM_CONF")
    try:
        if not path or Path(path).is_file():
            return None
    except OSError:  # of a folder that is not open to us: Slurm has words of its own
        return None
    return (
        f"SLURM_CONF={path}: there is no such file. Set it to the cluster's slurm.conf, or: unset SLURM_CONF"
    )


def run_client(command: list[str], timeout_s: float, environment: Mapping[str, str] | None = None) -> Answer:
    """A client command of Slurm, with nothing to read; never raises.

    environment: None: of `client_environment`.
    """
    environment = client_environment() if environment is None else environment
    wrong = lost_settings(environment)
    if wrong is not None and shutil.which(command[0]) is not None:
        return Answer(1, error=wrong)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return Answer(124)
    except (OSError, ValueError) as error:
        return Answer(127, error=str(error))
    return Answer(done.returncode, done.stdout, done.stderr)


def _row(values: Mapping[str, str | Any]) -> Row | None:
    match = _JOB.match(values.get("JobID", "").strip())
    if match is None:
        return None
    state, _, by = values.get("State", "").strip().partition(" by ")
    words = state.split()
    code, exit_signal = _exit(values.get("ExitCode", ""))
    component = f"+{match['component']}" if match["component"] else ""
    return Row(
        job=match["job"] + (f"_{match['task']}" if match["task"] else "") + component,
        step=match["step"],
        state=words[0].rstrip("+") if words else "",
        name=values.get("JobName", ""),
        cancelled_by=by.strip() or None,
        exit_code=code,
        exit_signal=exit_signal,
        max_rss_bytes=to_bytes(values.get("MaxRSS", "")),
        requested_bytes=_of_a_node(
            (match["step"] and _memory_of(values.get("AllocTRES", ""))) or values.get("ReqMem", ""),
            values.get("NodeList", ""),
        ),
        elapsed_s=to_seconds(values.get("Elapsed", "")),
        timelimit_s=real_limit(to_seconds(values.get("Timelimit", ""))),
        start=values.get("Start", ""),
        end=values.get("End", ""),
        nodes=values.get("NodeList", "").replace("None assigned", ""),
        reason="" if values.get("Reason", "") in ("None", "(null)") else values.get("Reason", ""),
        raw=values.get("JobIDRaw", "").partition(".")[0],
        restarts=int(restarts) if (restarts := values.get("Restarts", "").strip()).isdigit() else None,
    )


def count_nodes(listed: str) -> int:
    """Of a list as Slurm writes it: `n1` 1, `n[1-3,07],gpu5` 5; 0 where there is none."""
    count = 0
    for name in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", listed.strip()):
        inside = 1
        for ranges in re.findall(r"\[([^\]]*)\]", name):
            ends = [part.partition("-")[::2] for part in ranges.split(",")]
            known = [int(last) - int(first) + 1 for first, last in ends if first.isdigit() and last.isdigit()]
            inside *= max(1, sum(known) + len(ends) - len(known))
        count += inside
    return 0 if listed.strip() in ("", "None assigned", "(null)") else count


def _of_a_node(text: str, nodes: str) -> int | None:
    """ReqMem: from 21.08 on it is of all nodes together; before that, and in scontrol's words, of one."""
    found = to_bytes(text)
    if found is None or text.strip().endswith(("n", "c")):
        return found
    return found // max(1, count_nodes(nodes))


def _memory_of(resources: str) -> str:
    """Of `cpu=1,mem=150M,node=1`; a step's ReqMem is its job's, or blank."""
    return dict(one.partition("=")[::2] for one in resources.split(",")).get("mem", "")


def to_bytes(text: str) -> int | None:
    """`22528K`, `200M`, `1.50G`; to 20.11 ReqMem ends with `n` (a node) or `c` (a CPU)."""
    match = re.match(r"^([\d.]+)([KMGTP]?)[nc]?$", text.strip())
    try:
        return int(float(match[1]) * _UNITS[match[2]]) if match else None
    except ValueError:
        return None


def to_seconds(text: str) -> float | None:
    """`1-02:03:04`, `02:03.5`, `30`; None for `UNLIMITED`, `Partition_Limit`, a blank."""
    days, _, clock = text.strip().rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
        total = sum(part * 60**place for place, part in enumerate(reversed(parts[-3:])))
        return total + 86400 * int(days or 0)
    except ValueError:
        return None


def real_limit(limit_s: float | None) -> float | None:
    """Of a job's time; None of a year, which slurmctld writes where there is no limit (its YEAR_MINUTES)."""
    return None if limit_s is None or limit_s >= _YEAR_S else limit_s


def _exit(text: str) -> tuple[int | None, int | None]:
    code, _, number = text.strip().partition(":")
    return (int(code) if code.isdigit() else None, int(number) if number.isdigit() else None)


def read_settings(text: str) -> dict[str, str]:
    """Lines of `Name = value`, as `scontrol show config` prints them."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
