"""Any mixture of evidence gives one state of the list; no row of Slurm hides an OOM kill that was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import NOW_S

from experiment_utils.lock_file import Holder
from memory.accounting.sacct import Job, Row
from memory.explain.verdict.explanation import VERDICTS, Explanation
from slurm.records.submissions import Array, Place, Submission
from slurm.states import ENDED, FROM_SLURM, FROM_VERDICT, STATES
from slurm.status.run_evidence import RunEvidence
from slurm.status.run_history import RunHistory
from slurm.status.slurm_answers import QueueRow
from slurm.status.state_table import TABLE, decide
from slurm.status.timeline import events_of, fold
from tests.searched import examples

anything: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
words = st.sampled_from([*FROM_SLURM, "", "A_STATE_OF_NEXT_YEAR"])
moments = st.floats(NOW_S - 10_000, NOW_S + 10_000)
rows = st.builds(
    Row,
    st.just("4242_0"),
    st.none(),
    words,
    cancelled_by=st.sampled_from([None, "0", "x"]),
    exit_signal=st.sampled_from([None, 0, 9, 125]),
    start=moments.map(lambda s: str(int(s))),
    end=moments.map(lambda s: str(int(s))),
    timelimit_s=st.sampled_from([None, 600.0]),
    raw=st.just("4243"),
    restarts=st.sampled_from([None, 0, 1]),
    reason=st.sampled_from(["", "DependencyNeverSatisfied"]),
)
steps = st.builds(Row, st.just("4242_0"), st.sampled_from(["batch", "0"]), words)
jobs = st.builds(Job, rows, st.lists(steps, max_size=2).map(tuple))
queue_rows = st.builds(
    QueueRow,
    st.just("4242_0"),
    st.just("4243"),
    words,
    st.sampled_from(["", "Priority", "DependencyNeverSatisfied", "QOSMaxGRESPerUser", "what?"]),
    st.one_of(st.none(), moments),
)
statuses = st.one_of(
    st.just({}),
    st.dictionaries(
        st.sampled_from(["state", "reason", "step", "stage", "attempt", "heartbeat_s", "host", "pid"]),
        anything,
    ),
    st.fixed_dictionaries(
        {"state": st.sampled_from(["running", "done", "failed", "cancelled", "timeout", "oom"])},
        optional={
            "reason": st.sampled_from(["interrupted (Ctrl-C)", "CUDA out of memory", "ValueError: x", ""]),
            "attempt": st.integers(1, 3),
            "heartbeat_s": moments,
            "step": st.integers(0, 9),
            "host": st.just("n1"),
        },
    ),
)
NOTED = {
    "counters_before": {"oom_kill": 0},
    "counters_after": {"oom_kill": 1},
    "victim": {"is_main": True},
    "signal": "SIGKILL",
    "attempt": 1,
    "host": "n1",
}
outcomes = st.one_of(
    st.just({}),
    st.just(NOTED),
    st.dictionaries(
        st.sampled_from(
            [
                "signal",
                "exit_code",
                "victim",
                "counters_before",
                "counters_after",
                "environment",
                "host",
                "attempt",
            ]
        ),
        anything,
    ),
    st.builds(
        lambda code, signal, job: {"exit_code": code, "signal": signal, "environment": {"SLURM_JOB_ID": job}},
        st.sampled_from([None, 0, 1, 2, 137]),
        st.sampled_from([None, "SIGKILL", "SIGTERM"]),
        st.sampled_from(["4243", "1", "x"]),
    ),
)
arrays = st.builds(
    Array,
    st.just(0),
    st.just("sweep"),
    st.just([["a"], ["b"]]),
    how=st.sampled_from(["each", "pack", "shared"]),
    job_id=st.sampled_from(["4242", None]),
    error=st.sampled_from([None, "sbatch: error: no"]),
)


def placed(array: Array | None, launcher: str) -> dict[str, Any]:
    if array is None:
        return {}
    made = Submission("1", Path("s"), launcher, NOW_S - 300, "me", "here", "/", "x", [array])
    return {"submission": made, "array": array, "place": Place("1", 0, 0)}


begun = st.one_of(
    st.just({}),
    st.dictionaries(st.sampled_from(["job_id", "restart", "attempt", "end", "reason", "state"]), anything),
    st.builds(
        lambda restart, attempt, end: {
            "job_id": "4242_0",
            "restart": restart,
            "attempt": attempt,
            "end": end,
            "reason": "given up",
        },
        st.integers(0, 2),
        st.integers(1, 3),
        st.sampled_from([None, "requeued", "gave_up", "ended"]),
    ),
)
holders = st.one_of(
    st.none(),
    st.builds(Holder, st.sampled_from(["n1", "n2"]), st.just(1), st.just(1), st.just(""), st.none()),
)
evidences = st.builds(
    lambda status, outcome, holder, silent, sampled, notes, array, launcher: RunEvidence(
        Path("s/a"), status, outcome, holder, silent, sampled, tuple(notes), **placed(array, launcher)
    ),
    statuses,
    outcomes,
    holders,
    st.one_of(st.none(), st.floats(0, 1e5)),
    st.booleans(),
    st.lists(begun, max_size=2),
    st.one_of(st.none(), arrays),
    st.sampled_from(["slurm", "local"]),
)
explanations = st.one_of(
    st.none(),
    st.builds(
        Explanation,
        st.sampled_from(VERDICTS),
        st.just("none"),
        st.sampled_from(["It died.", ""]),
        st.just("likely"),
    ),
)


def history_of(known: RunEvidence, queue: QueueRow | None, rows: list[Job], **more: Any) -> RunHistory:
    submitted_s = known.submission.created_s if known.submission is not None else None
    job = known.job or ""
    return RunHistory(known, NOW_S, fold(events_of(known, job, queue, rows), job, submitted_s), **more)


histories = st.builds(
    lambda known, queue, rows, in_queue, in_accounting, explained, line, lives: history_of(
        known,
        queue,
        rows,
        in_queue=in_queue or queue is not None,
        in_accounting=in_accounting,
        explain=lambda: explained,
        last_words=lambda: line,
        launcher_lives=lives,
    ),
    evidences,
    st.one_of(st.none(), queue_rows),
    st.lists(jobs, max_size=2),
    st.booleans(),
    st.booleans(),
    explanations,
    st.sampled_from([None, "", "ModuleNotFoundError: x"]),
    st.sampled_from([None, True, False]),
)


@given(histories)
@settings(max_examples=examples(300))
def test_any_mixture_gives_one_state_of_the_list(history: RunHistory) -> None:
    found = decide(history)
    row = next(row for row in TABLE if row.name == found.rule)
    assert found.state == row.state
    assert found.source
    assert found.state == "done" or (found.reason or "").strip()
    assert "\n" not in (found.reason or "")
    assert (found.state == "done") == history.evidence.is_done


@given(histories, st.sampled_from(["running", "failed", "cancelled", "timeout", None]))
@settings(max_examples=examples(300))
def test_an_oom_kill_that_was_seen_is_hidden_by_no_row(history: RunHistory, state: str | None) -> None:
    known = history.evidence
    status = {} if state is None else {**known.status, "state": state, "reason": "stopped by SIGTERM"}
    seen = replace(known, status=status, outcome=NOTED, holder=None)
    accounted = [start.accounted for start in history.starts if start.accounted is not None]
    made = history_of(seen, history.last.queued, accounted)
    history = replace(made, in_queue=history.in_queue, launcher_lives=history.launcher_lives)
    found = decide(history)
    if found.rule == "waits_here":  # submitted again since
        assert not history.last.has_spoken
    elif found.state != "oom":  # of a later start: its reason names the kill
        assert history.job_state in ("queued", "running")
        assert found.state in ("queued", "blocked", "running", "stalled")
        assert history.job_state == "queued" or not history.last.has_spoken


@given(evidences, st.one_of(st.none(), queue_rows), st.lists(jobs, max_size=3), st.integers(0, 99))
@settings(max_examples=examples(300))
def test_the_order_of_events_does_not_matter(
    known: RunEvidence, queue: QueueRow | None, rows: list[Job], seed: int
) -> None:
    events = events_of(known, known.job or "", queue, rows)
    shuffled = Random(seed).sample(events, len(events))
    assert fold(shuffled, known.job or "", NOW_S - 300) == fold(events, known.job or "", NOW_S - 300)


def test_each_row_has_a_name_and_a_state_of_its_own() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert {row.state for row in TABLE} == set(STATES)


def test_words_of_slurm_and_of_memory_are_states() -> None:
    assert set(FROM_SLURM.values()) <= set(STATES)
    assert set(FROM_VERDICT) == set(VERDICTS)
    assert set(FROM_VERDICT.values()) <= set(ENDED)


@pytest.mark.parametrize(("cause", "rule"), [("scancel", "killed"), ("signal", "killed_explained")])
def test_a_later_scancel_of_its_job_does_not_explain_a_death_that_the_job_noted(
    cause: str, rule: str
) -> None:
    note = {"job_id": "4242", "restart": 0, "attempt": 1, "end": "ended", "reason": "its step was killed"}
    known = RunEvidence(
        Path("s/a"), {"state": "running", "attempt": 1}, {}, None, 900.0, False, (note,),
        **placed(Array(0, "sweep", [["a"], ["b"]], how="shared", job_id="4242"), "slurm"),
    )  # fmt: skip
    explained = Explanation("killed_from_outside", cause, "It was cancelled.", "certain")
    history = history_of(known, None, [], in_queue=True, explain=lambda: explained)
    assert decide(history).rule == rule
