"""Runs a case for real: the supervisor around its program, in a cgroup with a limit; then asks `explain`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.memory.deaths.cases import HERE, Case
from tests.memory.deaths.cgroups import MB, Cgroups, cgroups

ROOT = HERE.parents[2]
TIMEOUT_S = 90.0
Observer = Callable[[int], AbstractContextManager[Any]]


@dataclass
class Ran:
    """What became of a case. returncode: of the supervisor. oom_kills: counted by the kernel in the job's
    cgroups over the whole case. explanation: of `explain --json`, empty if it failed. wrong: in what it
    differs from the truth, nothing if it is right.
    """

    case: Case
    run: Path
    returncode: int
    seconds: float
    oom_kills: int | None = None
    explanation: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def misfire(self) -> str:
        """Why the case itself did not come out as its author meant, so that nothing can be judged; or ""."""
        ended = f"it ended with {self.returncode}: {_end(self.run / 'stderr.txt')}"
        if self.case.kind == "healthy" and self.returncode != 0:
            return f"a healthy run is to end with 0; {ended}"
        if self.case.verdict == ("oom_cgroup",) and not self.oom_kills:
            return f"no kill for memory was counted; {ended}"
        return ""

    def report(self) -> str:
        """For a failing test: what was said, and how to see more."""
        outcome = self.run / "outcome.json"
        return "\n".join(
            [
                f"{self.case.name}: {self.case.what}",
                *([f"  misfired: {self.misfire()}"] if self.misfire() else []),
                *(f"  wrong: {line}" for line in self.wrong),
                json.dumps(self.explanation, indent=2),
                f"outcome: {outcome.read_text() if outcome.exists() else 'none'}",
                f"log: {_end(self.run / 'stderr.txt')}",
            ]
        )


def supervised(case: Case, run: Path) -> list[str]:
    """The command line of the supervisor around the case's program."""
    words = {"python": sys.executable, "program": str(case.program)}
    command = [word.format(**words) if "{p" in word else word for word in case.command]
    supervisor = str(ROOT / "memory" / "supervisor.py")
    return [sys.executable, "-I", "-S", supervisor, "--output", str(run), "--", *command]


def environment(folder: Path, run: Path) -> dict[str, str]:
    """What the programs of a case find in their environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    return {
        **kept,
        "CASE_FOLDER": str(folder),
        "CASE_RUN": str(run),
        "PYTHONPATH": f"{ROOT}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_case(
    case: Case,
    folder: Path,
    observer: Observer | None = None,
    timeout_s: float = TIMEOUT_S,
    then: Callable[[Ran], None] = lambda ran: None,
) -> Ran:
    """Let it live and die.

    Args:
        observer: entered with the supervisor's pid, left when that has ended.
        then: called in the end, while the run's folder is still there.

    Raises:
        NoCgroup: see `cgroups`.
        subprocess.TimeoutExpired: it neither died nor ended in time.
    """
    scratch, run = folder / "scratch", folder / "run"
    scratch.mkdir(parents=True)
    run.mkdir()
    with _disk(run, case.run_disk_mb):
        with cgroups(
            case.limit_mb,
            parent_limit_mb=case.parent_limit_mb,
            high_mb=case.high_mb,
            oom_group=case.oom_group,
        ) as around:
            returncode, seconds = _live_and_die(case, around, scratch, run, observer, timeout_s)
            ran = Ran(case, run, returncode, seconds, around.oom_kills())
        judge(ran)
        then(ran)
    return ran


def judge(ran: Ran, more_environment: dict[str, str] | None = None) -> None:
    """Ask `explain` as a user does, when all is over and the cgroup is gone, and compare with the truth."""
    asked = subprocess.run(
        [sys.executable, "-m", "memory", "explain", str(ran.run), "--json"],
        cwd=ROOT,
        env={**os.environ, **(more_environment or {})},
        capture_output=True,
        text=True,
        timeout=240,
    )
    try:
        ran.explanation = json.loads(asked.stdout)
        ran.wrong = differences(ran.case, ran.explanation)
    except ValueError:
        ran.wrong = [f"explain ended with {asked.returncode} and no JSON: {asked.stderr[-2000:]}"]


def differences(case: Case, explanation: dict[str, Any]) -> list[str]:
    """In what an explanation differs from the truth."""
    found = []
    verdict, cause, victim = (explanation.get(key) for key in ("verdict", "cause", "victim"))
    if verdict not in case.verdict:
        found.append(f"verdict {verdict}, should be {' or '.join(case.verdict)}")
    if case.cause and not {cause, *explanation.get("other_causes", ())} & set(case.cause):
        found.append(f"cause {cause}, should be {' or '.join(case.cause)}")
    if case.victim and _kind_of_victim(victim) != case.victim:
        found.append(f"victim {victim}, should be {case.victim}")
    if case.near_limit is not None and bool(explanation.get("near_limit")) != case.near_limit:
        found.append(f"near_limit {explanation.get('near_limit')}, should be {case.near_limit}")
    told = json.dumps(explanation).casefold()
    found.extend(f"says nothing of {word!r}" for word in case.says if word.casefold() not in told)
    return found


def _kind_of_victim(victim: Any) -> str:
    if isinstance(victim, dict) and isinstance(victim.get("is_main"), bool):
        return "main" if victim["is_main"] else "child"
    return str(victim)


def _live_and_die(
    case: Case, around: Cgroups, scratch: Path, run: Path, observer: Observer | None, timeout_s: float
) -> tuple[int, float]:
    """Exit status of the supervisor, seconds."""
    variables, lines = environment(scratch, run), []
    if case.shm_mb is not None:
        lines.append(f"mount -t tmpfs -o size={case.shm_mb}m tmpfs /dev/shm")
    lines.append(f"echo $$ > {shlex.quote(str(around.task / 'cgroup.procs'))}")
    if case.rlimit_as_mb is not None:
        lines.append(f"ulimit -v {case.rlimit_as_mb * 1024}")
    if case.before:
        lines.append(f"{shlex.quote(sys.executable)} {shlex.quote(str(case.program))} before || true")
    shell = ["sh", "-ec", "\n".join([*lines, 'exec "$@"']), "sh", *supervised(case, run)]
    if case.shm_mb is not None:
        shell = ["unshare", "--mount", *shell]  # the tmpfs goes with its last process
    with (
        open(run / "stdout.txt", "wb") as out,
        open(run / "stderr.txt", "wb") as err,
        _beside(case, around, variables),
    ):
        begin = time.monotonic()
        started = subprocess.Popen(shell, env=variables, stdout=out, stderr=err, start_new_session=True)
        with observer(started.pid) if observer else nullcontext():
            returncode = started.wait(timeout_s)
        return returncode, time.monotonic() - begin


@contextmanager
def _beside(case: Case, around: Cgroups, variables: dict[str, str]) -> Iterator[None]:
    """The second process of a case, where it has one."""
    if not case.beside:
        yield
        return
    enter = {"job": around.task, "sibling": around.sibling}.get(case.beside)
    first = "" if enter is None else f"echo $$ > {shlex.quote(str(enter / 'cgroup.procs'))}\n"
    command = ["sh", "-ec", first + 'exec "$@"', "sh", sys.executable, str(case.program), "beside"]
    started = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        started.kill()
        started.wait()


@contextmanager
def _disk(folder: Path, megabytes: int | None) -> Iterator[None]:
    if megabytes is None:
        yield
        return
    options = f"size={megabytes * MB}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _end(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""
