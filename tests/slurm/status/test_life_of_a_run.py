"""The state of a run against its true life, when files are lost and Slurm's rows are late, doubled or old.

A life is a list of starts of jobs, as Slurm, the job, the run and its supervisor record them. What is true at
its end is known; what a reader may conclude is less, and must never be dangerous.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_studies import NOW_S, FakeSlurm, MadeStudy

from experiment_utils.exit_status import LEASE_LOST
from slurm.records.submissions import Place, add_place
from slurm.status import RunState, study_states
from slurm.status.state_table import TABLE
from tests.searched import examples

LASTS_S, WAITS_S = 600.0, 200.0
REQUEUED = {"time_up": "REQUEUED", "preempted": "PREEMPTED", "node_lost": "NODE_FAIL"}
"""Ends of a start after which the job goes back into the queue, with Slurm's word for the start."""
FINAL = {
    "failed": "FAILED", "killed": "FAILED", "cancelled": "CANCELLED by 0", "out_of_time": "TIMEOUT",
    "no_word": "FAILED", "crashed": "FAILED", "oom": "FAILED", "done": "COMPLETED",
}  # fmt: skip
"""`no_word`: the job ended before it started the run; `crashed`: the run ended before its first status."""
LIVE = ("waits", "begins", "runs")
SAID = {
    "time_up": ("timeout", "stopped by SIGUSR2"), "preempted": ("cancelled", "stopped by SIGTERM"),
    "node_lost": ("running", None), "failed": ("failed", "ValueError: no"), "killed": ("running", None),
    "cancelled": ("cancelled", "stopped by SIGTERM"), "out_of_time": ("running", None),
    "oom": ("running", None), "done": ("done", None), "runs": ("running", None),
}  # fmt: skip
NOTED: dict[str, dict[str, Any]] = {
    "time_up": {"end": "requeued", "state": "timeout", "signal": "SIGUSR2"},
    "preempted": {"end": "requeued", "state": "preempted", "signal": "SIGTERM"},
    "failed": {"end": "ended", "state": "failed", "reason": "ValueError: no"},
    "killed": {"end": "ended", "state": "failed", "reason": "killed by SIGKILL"},
    "oom": {"end": "ended", "state": "oom", "reason": "the kernel killed it for memory"},
    "cancelled": {"end": "ended", "state": "cancelled", "signal": "SIGTERM"},
    "no_word": {"end": "ended", "state": "failed", "reason": "ImportError: no"},
    "crashed": {"end": "ended", "state": "failed", "reason": "ImportError: no"},
    "done": {"end": "done", "state": "done"},
}
SUPERVISED = {
    "time_up": 1, "preempted": 1, "failed": 1, "cancelled": 1, "killed": None, "crashed": 1, "oom": None,
    "done": 0,
}  # fmt: skip
"""Exit codes of starts of which a supervisor saw the end."""
FILES = ("status.json", "outcome.json", "starts.json", "run.lock", "run.json")


@dataclass
class Start:
    """One start of a job, as it truly was."""

    how: str
    job: str
    raw: str
    submission: int
    restart: int
    attempt: int
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Faults:
    """What a reader does not get to see, or sees twice."""

    lost: frozenset[str] = frozenset()
    has_stamps: bool = True
    """Whether status.json and outcome.json name the start that wrote them; earlier versions did not."""
    has_accounting: bool = True
    late_rows: int = 0
    """Number of newest starts that sacct does not know yet; the one before is shown as RUNNING."""
    is_doubled: bool = False
    has_restarts: bool = True
    remembers: bool = False
    """Whether squeue still lists a job that has just ended."""
    has_queue: bool = True
    """Whether squeue answers."""
    clock_s: float = 0.0
    """How far the clock of the node is ahead."""
    has_lost_lease: bool = False
    """Whether an earlier start that had not noticed its end found its lease taken, a moment ago."""
    damage: tuple[tuple[str, str, Any], ...] = ()
    """Values of another shape than is written: file, key, value."""


@dataclass
class Life:
    """All starts of a run. how: the end of each; the last can be alive."""

    how: list[str]
    sharing: str = "each"
    """Whether other runs share the job; see `submissions.Array.how`."""
    starts: list[Start] = field(default_factory=list)

    def __post_init__(self) -> None:
        job, restart, attempt = 0, 0, 0
        began_s = NOW_S - (LASTS_S + WAITS_S) * len(self.how)
        for place, how in enumerate(self.how):
            number = attempt + 1  # one that ends before its first status has the number of the next one
            attempt += how in SAID
            began_s = NOW_S - 40 if how in LIVE else began_s
            name, raw = f"{4242 + 100 * job}{'_0' * (self.sharing == 'each')}", str(4243 + 100 * job)
            raw = raw if self.sharing == "each" else name
            self.starts.append(Start(how, name, raw, job, restart, number, began_s, began_s + LASTS_S))
            began_s += LASTS_S + WAITS_S
            is_again = how in REQUEUED and place + 1 < len(self.how)
            job, restart = (job, restart + 1) if is_again else (job + 1, 0)

    @property
    def is_live(self) -> bool:
        return self.how[-1] in LIVE

    @property
    def is_done(self) -> bool:
        return self.how[-1] == "done"

    def write(self, folder: Path, faults: Faults) -> tuple[MadeStudy, FakeSlurm]:
        """The records of the life, as far as the faults leave them."""
        study, slurm = MadeStudy(folder / "sweep", ["a", "b"], how=self.sharing), FakeSlurm()
        for job in {start.submission for start in self.starts} - {0}:
            array = replace(study.submission.arrays[0], job_id=str(4242 + 100 * job))
            begins_s = min(start.began_s for start in self.starts if start.submission == job)
            more = replace(
                study.submission, id=f"20270115-{job + 1}", arrays=[array], created_s=begins_s - 100
            )
            more.write()
            add_place(study.folder / "a", Place(more.id, 0, 0))
        self._write_files(study, faults)
        self._answer(slurm, faults)
        return study, slurm

    def _write_files(self, study: MadeStudy, faults: Faults) -> None:
        notes, attempts = [], []
        for start in self.starts:
            ids = variables(start)
            ended_s = start.ended_s + faults.clock_s
            if start.how != "waits" and start.how != "begins":
                closed = NOTED.get(start.how, {})
                notes.append(
                    {
                        "job_id": start.job, "restart": start.restart, "end": None,
                        "attempt": start.attempt, "started_s": start.began_s + faults.clock_s + 1,
                        **closed, **({"ended_s": ended_s} if closed else {}),
                    }
                )  # fmt: skip
            if start.how in SUPERVISED:
                code = SUPERVISED[start.how]
                kills = {"counters_after": {"oom_kill": 1}} if start.how == "oom" else {}
                study.outcome(
                    "a", exit_code=code, signal="SIGKILL" if code is None else None, attempt=start.attempt,
                    ended_s=ended_s, environment=ids if faults.has_stamps else {}, **kills,
                )  # fmt: skip
            elif start.how in SAID:
                (study.folder / "a" / "outcome.json").unlink(missing_ok=True)
            if start.how not in SAID:
                continue
            attempts.append({"attempt": start.attempt, "host": "n1", "pid": 100, "job_ids": ids})
            state, reason = SAID[start.how]
            age_s = 2.0 if start.how == "runs" else NOW_S - start.ended_s
            more = {"job_ids": ids} if faults.has_stamps else {}
            beat_s = NOW_S - age_s + faults.clock_s
            study.status("a", state, age_s, reason=reason, attempt=start.attempt, heartbeat_s=beat_s, **more)
            (study.folder / "a" / "run.lock").unlink(missing_ok=True)
            if start.how in ("runs", "node_lost", "out_of_time"):
                study.lock("a")
        (study.folder / "a" / "starts.json").write_text(json.dumps({"starts": notes}))
        if faults.has_stamps:
            (study.folder / "a" / "run.json").write_text(json.dumps({"attempts": attempts}))
        if faults.has_lost_lease and len(self.starts) > 1 and self.starts[-1].how == "runs":
            study.outcome("a", exit_code=LEASE_LOST, attempt=self.starts[-1].attempt, ended_s=NOW_S)
        for name in faults.lost:
            (study.folder / "a" / name).unlink(missing_ok=True)
        for name, key, value in faults.damage:
            path = study.folder / "a" / name
            plain = json.loads(path.read_text()) if path.exists() else {}
            for one in plain["starts"] if isinstance(plain.get("starts"), list) else [plain]:
                one[key] = value
            path.write_text(json.dumps(plain))

    def _answer(self, slurm: FakeSlurm, faults: Faults) -> None:
        last = self.starts[-1]
        job, raw = last.job, last.raw
        began = str(int(last.began_s))
        if last.how == "waits":
            slurm.wait(job, "PENDING", "Priority", raw=raw)
        elif self.is_live:
            slurm.wait(job, "RUNNING", "None", raw=raw, start=began, nodes="n1")
        elif faults.remembers:
            word = {**REQUEUED, **FINAL}[last.how].partition(" ")[0]
            slurm.wait(job, word, "None", raw=raw, start=began, nodes="n1")
        slurm.queue = slurm.queue if faults.has_queue else None
        if not faults.has_accounting:
            slurm.accounting = None
            return
        known = self.starts[: len(self.starts) - faults.late_rows]
        for start in known:
            is_late = faults.late_rows > 0 and start is known[-1]
            for _ in range(1 + faults.is_doubled):
                slurm.row(
                    start.job, row_word(start, is_late),
                    "1:0" if start.how in ("failed", "killed", "no_word", "crashed", "oom") else "0:0",
                    JobIDRaw=start.raw,
                    Start="Unknown" if start.how == "waits" else str(int(start.began_s)),
                    End="Unknown" if start.how in LIVE or is_late else str(int(start.ended_s)),
                    Restarts=str(start.restart) if faults.has_restarts else "",
                )  # fmt: skip


def variables(start: Start) -> dict[str, str]:
    array, _, task = start.job.partition("_")
    of_array = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task} if task else {}
    count = {"SLURM_RESTART_COUNT": str(start.restart)} if start.restart else {}
    return {"SLURM_JOB_ID": start.raw} | of_array | count


def row_word(start: Start, is_late: bool) -> str:
    if start.how in LIVE:
        return "PENDING" if start.how == "waits" else "RUNNING"
    return "RUNNING" if is_late else {**REQUEUED, **FINAL}[start.how]


def seen(life: Life, faults: Faults) -> RunState:
    with TemporaryDirectory() as folder:
        study, slurm = life.write(Path(folder), faults)
        found = {one.name: one for one in study_states(study.folder, ask=slurm.ask, now_s=NOW_S)}
        assert sorted(found) == ["a", "b"], "a run is missing in the list"
    return found["a"]


ends = st.sampled_from([*REQUEUED, *(end for end in FINAL if end != "done")])
lives = st.builds(
    lambda before, last, sharing: Life([*before, last], sharing),
    st.lists(ends, max_size=3),
    st.sampled_from([*LIVE, *FINAL, "node_lost"]),
    st.sampled_from(["each", "each", "pack", "shared", "workers"]),
)
faults_of_all_kinds = st.builds(
    Faults,
    st.frozensets(st.sampled_from(FILES)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([-20.0, 0.0, 20.0]),
    st.booleans(),
)


@given(lives, faults_of_all_kinds)
@example(Life(["time_up", "begins"]), Faults(frozenset({"starts.json"}), late_rows=1))
@example(Life(["preempted", "begins"]), Faults(frozenset({"starts.json"}), has_accounting=False))
@example(Life(["failed", "waits"]), Faults(frozenset(FILES), has_accounting=False))
@example(Life(["node_lost", "runs"]), Faults(has_lost_lease=True))
@example(Life(["killed", "begins"]), Faults(has_stamps=False, is_doubled=True, has_restarts=False))
@settings(max_examples=examples(1500), deadline=None)
def test_no_fault_makes_a_state_dangerous(life: Life, faults: Faults) -> None:
    found = seen(life, faults)
    if life.is_done and "status.json" not in faults.lost:
        assert (found.state, found.reason) == ("done", None)
    is_beating = life.how[-1] == "runs" and faults.lost.isdisjoint({"status.json", "run.lock"})
    if is_beating or (life.is_live and faults.has_queue):  # without squeue nothing is submitted again
        assert found.state in ("queued", "running", "stalled", "blocked"), "it would run twice"
    if life.how[-1] == "oom" and "outcome.json" not in faults.lost and not faults.late_rows:
        assert found.state == "oom", "a kill that was seen is hidden by no row"
    has_reason(found)


def has_reason(found: RunState) -> None:
    row = next(row for row in TABLE if row.name == found.rule)
    assert (found.state, bool(found.source)) == (row.state, True)
    assert found.state == "done" or (found.reason or "").strip()
    assert "\n" not in (found.reason or "")


KEYS = (
    "state", "reason", "step", "stage", "attempt", "heartbeat_s", "host", "signal", "exit_code", "victim",
    "counters_after", "environment", "job_ids", "job_id", "restart", "end", "starts", "attempts", "pid",
)  # fmt: skip
damages = st.tuples(
    st.sampled_from(FILES),
    st.sampled_from(KEYS),
    st.sampled_from([None, True, -1, 10**9, 1.5, "", "x", "two\nlines", [1], {"oom_kill": "x"}]),
)


@given(lives, faults_of_all_kinds, st.lists(damages, min_size=1, max_size=4))
@settings(max_examples=examples(600), deadline=None)
def test_values_of_any_shape_leave_a_state_and_a_reason(
    life: Life, faults: Faults, damage: list[tuple[str, str, Any]]
) -> None:
    has_reason(seen(life, replace(faults, damage=tuple(damage))))


ENDS_AS = {
    "node_lost": "node_failed", "failed": "failed",
    "killed": "failed", "oom": "oom", "cancelled": "cancelled", "out_of_time": "timeout", "done": "done",
}  # fmt: skip


@given(lives, st.booleans(), st.sampled_from([-3600.0, 0.0, 3600.0]))
@settings(max_examples=examples(600), deadline=None)
def test_the_state_is_true_where_nothing_is_lost(life: Life, remembers: bool, clock_s: float) -> None:
    life = Life(life.how)  # rows of steps, of which a packed run has one, are not written here
    found = seen(life, Faults(remembers=remembers, clock_s=clock_s))  # stamps need no clock
    how = life.how[-1]
    if how in ("no_word", "crashed"):
        has_spoken = any(start.how in SAID for start in life.starts)
        assert found.state == ("failed" if has_spoken else "never_started")
    elif not life.is_live:
        assert found.state == ENDS_AS[how]
    else:
        assert found.state == ("queued" if how == "waits" else "running")
