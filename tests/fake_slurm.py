"""Slurm's client commands as far as submitting uses them: a folder of jobs, and each call of sbatch noted.

with FakeSlurm(folder) on PATH: sbatch makes jobs/ID.job; a test changes states there
"""

from __future__ import annotations

import os
import stat
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "srun")

PROGRAM = """#!{python} -SE
import fcntl, os, sys, time  # no more: tests start hundreds of these
home = {home!r}
name, given = sys.argv[0].rpartition("/")[2], sys.argv[1:]

def told(what):
    try:
        with open(f"{{home}}/{{what}}") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None

def option(word):
    return next((one.partition("=")[2] for one in given if one.startswith(f"--{{word}}=")), None)

def read(path):
    with open(path) as file:
        return eval(file.read())

def write(path, job):
    with open(f"{{path}}.temporary", "w") as file:
        file.write(repr(job))
    os.rename(f"{{path}}.temporary", path)

def all_jobs():
    names, ids = option("name"), option("jobs")
    paths = sorted(one for one in os.listdir(f"{{home}}/jobs") if one.endswith(".job"))
    found = [read(f"{{home}}/jobs/{{path}}") for path in paths]
    found = [job for job in found if ids is None or str(job["id"]) in ids.split(",")]
    return [job for job in found if names is None or job["name"] in names.split(",")]

if told(f"no_{{name}}"):
    sys.exit(f"{{name}}: error: {{told(f'no_{{name}}')}}")
if name == "squeue" and told("no_squeue_after_sbatch") and os.listdir(f"{{home}}/jobs"):
    sys.exit(f"squeue: error: {{told('no_squeue_after_sbatch')}}")
with open(f"{{home}}/calls.txt", "a") as file:
    file.write(repr([name, *given]) + "\\n")
if name == "sbatch":
    path = next((one for one in given if not one.startswith("-")), None)
    text = open(path).read() if path else sys.stdin.read()
    lines = [line[len("#SBATCH --"):] for line in text.splitlines() if line.startswith("#SBATCH --")]
    options = {{line.partition("=")[0]: line.partition("=")[2] for line in lines}}
    if options.get("partition") == "nope" or told("refuse"):
        sys.exit("sbatch: error: " + (told("refuse") or "invalid partition specified: nope"))
    if "dependency" in options and told("refuse_dependency"):
        sys.exit("sbatch: error: " + told("refuse_dependency"))
    tasks = int(options["array"].partition("%")[0].removeprefix("0-")) + 1 if "array" in options else 1
    queued = sum(state in ("PENDING", "RUNNING") for job in all_jobs() for state in job["states"])
    if told("most") and queued + tasks > int(told("most")):
        sys.exit("sbatch: error: QOSGrpSubmitJobsLimit; Job violates accounting/QOS policy")
    of_partition, _, most = (told("most_in") or "").partition(" ")
    if most and options.get("partition") == of_partition:
        there = [job for job in all_jobs() if job["options"].get("partition") == of_partition]
        queued = sum(state in ("PENDING", "RUNNING") for job in there for state in job["states"])
        if queued + tasks > int(most):
            sys.exit("sbatch: error: QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy")
    if "--test-only" in given:
        sys.exit(told("test_only"))
    if told("refuse_job"):
        sys.exit(told("refuse_job"))
    if told("lost_without_job"):
        sys.exit("sbatch: error: Batch job submission failed: " + told("lost_without_job"))
    if told("slow_before"):
        time.sleep(float(told("slow_before")))
    with open(f"{{home}}/next", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 100) + 1
        file.truncate(0)
        file.write(str(number))
    job = dict(id=number, name=options["job-name"], states=["PENDING"] * tasks, array="array" in options,
               options=options, script=path, environment=dict(os.environ), cwd=os.getcwd())
    write(f"{{home}}/jobs/{{number}}.job", job)
    if told("slow_after"):
        time.sleep(float(told("slow_after")))
    if told("lost"):
        if told("lost") == "SIGKILL":
            os.kill(os.getpid(), 9)
        sys.exit("sbatch: error: Batch job submission failed: " + told("lost"))
    print(told("banner") or "", end="")
    print(number if "--parsable" in given else f"Submitted batch job {{number}}")
elif name == "squeue":
    hidden = [one for one in ("PARTITION", "USERS", "ACCOUNT", "QOS") if os.environ.get(f"SQUEUE_{{one}}")]
    for job in [] if hidden else all_jobs():
        for task, state in enumerate(job["states"]):
            if state in ("PENDING", "RUNNING", "COMPLETING") or option("states") == "all":
                words = {{"%j": job["name"], "%T": state, "%F": str(job["id"])}}
                words |= {{"%A": words["%F"], "%K": str(task) if job["array"] else "N/A"}}
                words["%o"], words["%Z"], words["%r"] = job["script"], job["cwd"], job.get("reason", "None")
                first, *rest = option("format").split("%")
                print(first + "".join(words.get(f"%{{one[0]}}", f"%{{one[0]}}") + one[1:] for one in rest))
elif name == "sacct":
    for job in all_jobs():
        print(f"{{job['id']}}|{{job['name']}}")
elif name == "scancel":
    for one in given:
        number, _, task = one.partition("_")
        path = f"{{home}}/jobs/{{number}}.job"
        job = read(path)
        chosen = [int(task)] if task else range(len(job["states"]))
        job["states"] = ["CANCELLED" if n in chosen else state for n, state in enumerate(job["states"])]
        write(path, job)
"""


NOT_HERE = "#!/bin/sh\nexit 1\n"
SCONTROL = """#!/bin/sh
case "$*" in
"show config") cat {home}/config;;
show*|--*) exit 1;;
*) exec {bin}/.scontrol/scontrol "$@";;
esac
"""
"""What is asked at every submission is told by the shell, which is up five times as fast as Python."""


class FakeSlurm:
    """folder: where it keeps its jobs. A test tells it things by files: refuse, no_squeue, slow_after;
    refuse_job: of sbatch without --test-only; lost: sbatch makes the job and ends with these words all the
    same; banner: lines that a site's sbatch
    prints before its answer;
    most: tasks in the queue, of which sbatch alone knows; most_in: `PARTITION MOST`, of one's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in COMMANDS:
            path = self.bin / name
            if name == "scontrol":
                path = self.bin / ".scontrol" / name
                path.parent.mkdir()
            self._write(path, PROGRAM.format(python=sys.executable, home=str(folder)))
        self._write(self.bin / "scontrol", SCONTROL.format(home=folder, bin=self.bin))
        for name in ("sinfo", "sacctmgr"):
            self._write(self.bin / name, NOT_HERE)
        self.tell("config", "MaxArraySize            = 1001\n")

    def write_client(self, name: str, text: str) -> None:
        """In place of its own command of that name."""
        self._write(self.bin / name, text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def path(self) -> str:
        """For PATH."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def tell(self, what: str, value: str) -> None:
        (self.folder / what).write_text(value)

    def calls(self, name: str) -> list[list[str]]:
        """Arguments of each call of a command, in order."""
        path = self.folder / "calls.txt"
        found = [literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call[1:] for call in found if call[0] == name]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [literal_eval(path.read_text()) for path in sorted((self.folder / "jobs").glob("*.job"))]

    @property
    def pending(self) -> list[tuple[int, int]]:
        """Job and task of each that is in the queue and has not begun: what fills MaxSubmitJobs."""
        states = [(job["id"], enumerate(job["states"])) for job in self.jobs]
        return [(job, task) for job, of_job in states for task, state in of_job if state == "PENDING"]

    def rename(self, job: int | str, name: str, script: str | None = None) -> None:
        """script: it is another job of that number."""
        path = self.folder / "jobs" / f"{job}.job"
        found = literal_eval(path.read_text()) | {"name": name}
        _write(path, found | ({"script": script} if script else {}))

    def set_state(self, job: int | str, state: str, task: int | None = None) -> None:
        """Of one task, or of all."""
        path = self.folder / "jobs" / f"{job}.job"
        found = literal_eval(path.read_text())
        found["states"] = [
            state if task in (None, number) else before for number, before in enumerate(found["states"])
        ]
        _write(path, found)


def _write(path: Path, job: dict[str, Any]) -> None:
    """Others read it meanwhile."""
    temporary = path.with_suffix(".temporary")
    temporary.write_text(repr(job))
    temporary.rename(path)
