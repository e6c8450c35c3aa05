"""Whatever files hold, there is one verdict, and no row fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import killed, oom, outcome, ramp, record, write
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.accounting.sacct import SlurmFacts, parse_sacct
from memory.explain import VERDICTS, explain
from memory.explain.decide import FAILED
from memory.explain.rules import TABLE
from memory.explain.verdict.explanation import CONFIDENCES
from memory.explain.verdict.text import as_text
from memory.record.evidence import Evidence
from memory.record.samples import ProcessSample, Sample
from tests.searched import examples

WORDS = st.sampled_from(
    ["SIGKILL", "SIGNONE", "host", "/a", "/a/b", "done", "failed", "oom_kill", "\0", "train"]
)
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([2**30, 137, 143, 124, 1.7e9]))
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)


def objects(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), LEAVES, max_size=4)


COUNTERS = objects("oom_kill", "oom_group_kill", "max", "failcnt") | VALUES
OUTCOMES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(outcome(), VALUES),
        "counters_before": COUNTERS,
        "counters_after": COUNTERS,
        "children_lost": st.lists(objects("pid", "name", "last_anon_bytes", "time_s"), max_size=3),
        "signals_passed_on": st.lists(objects("signal", "time_s", "from_pid"), max_size=3),
        "parents": st.lists(objects("path", "limit_bytes", "oom_kill_before", "oom_kill_after"), max_size=3),
        "dev_shm": objects("total_bytes", "used_before_bytes", "used_after_bytes"),
        "rlimits": objects("as_bytes", "data_bytes", "cpu_hard_s"),
    },
)
AMOUNTS = st.none() | st.sampled_from([0, 2**30, -1, 2**41])
NAMES = [name for name in Sample.__slots__ if name not in ("time_s", "tree")]
PROCESSES = st.builds(ProcessSample, st.integers(1, 2**31), st.just("x"), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
SAMPLES = st.lists(
    st.builds(
        lambda at, values, tree: Sample(1.7e9 + at, tree=tuple(tree), **values),
        st.integers(0, 100),
        st.dictionaries(st.sampled_from(NAMES), AMOUNTS, max_size=12),
        st.lists(PROCESSES, max_size=3),
    ),
    max_size=12,
)
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(list(record("end", "train", 1, 1))), VALUES | WORDS, max_size=8)
    | st.builds(lambda event, at: record(event, "train", at, at, step=at), WORDS, st.integers(0, 50)),
    max_size=16,
)
LINES = st.sampled_from([
    "MemoryError", "CUDA out of memory. Tried to allocate 1..2 GiB (GPU 0; . GiB total capacity)",
    "Out of memory: Killed process 99999999999999999999 (", "StepId=5.0 exceeded memory limit (1 > 0)",
    "Traceback (most recent call last):", "run a, attempt 1, on cpu", "run a, attempt 2, on cpu",
])  # fmt: skip
STACKS = 'Current thread 0x1 (most recent call first):\n  File "a.py", line 99999999 in f\n'


@settings(max_examples=examples(80))
@given(
    OUTCOMES | st.none(),
    objects("state", "attempt", "reason", "stage", "heartbeat_s") | st.none(),
    st.dictionaries(st.sampled_from(["config", "auto", "data", "attempts", "memory"]), VALUES) | st.none(),
    SAMPLES,
    RECORDS,
    st.lists(LINES, max_size=5),
    objects("pid", "attempt", "host", "command", "limit_at"),
    st.sampled_from(
        [None, "1|COMPLETED|0:0", "1|OUT_OF_MEMORY|0:125", "1.0|FAILED|x:y", "1|CANCELLED by 7|:"]
    ),
)
def test_garbage(
    tmp_path_factory: pytest.TempPathFactory,
    ended: dict[str, Any] | None,
    status: dict[str, Any] | None,
    run: dict[str, Any] | None,
    samples: list[Sample],
    records: list[dict[str, Any]],
    lines: list[str],
    ring_facts: dict[str, Any],
    row: str | None,
) -> None:
    parts = {"outcome": ended, "status": status, "run": run, "samples": samples, "records": records}
    folder = tmp_path_factory.mktemp("run")
    write(folder, log="\n".join(lines), ring_facts=ring_facts, stacks=STACKS, **parts)  # type: ignore[arg-type]
    slurm = SlurmFacts("1", tuple(parse_sacct(f"JobID|State|ExitCode\n{row}\n")), "sacct") if row else None
    found = explain(Evidence(folder), slurm=slurm)
    assert found.verdict in VERDICTS
    assert found.confidence in CONFIDENCES
    assert not [line for line in found.missing if FAILED in line], found.missing
    json.dumps(found.to_json())
    assert as_text(found)


@given(
    st.binary(max_size=300),
    st.sampled_from(["outcome.json", "memory.ring", "memory.jsonl", "status.json", "log.txt"]),
)
def test_garbage_in_a_file(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    folder = write(tmp_path_factory.mktemp("run"), outcome=killed(**oom()), samples=ramp(1, 1000, 5))
    (folder / name).write_bytes(content)
    assert explain(Evidence(folder)).verdict in VERDICTS


def test_ring_that_was_cut_short(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", outcome=killed(**oom()), samples=ramp(1, 1000, 5))
    whole = (folder / "memory.ring").read_bytes()
    for size in (0, 100, 5000, len(whole) - 1):
        (folder / "memory.ring").write_bytes(whole[:size])
        assert explain(Evidence(folder)).verdict == "oom_cgroup"


def test_row_that_fails_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(TABLE[0], name="broken", when=lambda signals: {}["x"])
    monkeypatch.setattr("memory.explain.decide.TABLE", (row, *TABLE))
    found = explain(Evidence(write(tmp_path / "run", outcome=killed(**oom()), samples=ramp(1, 1000, 5))))
    assert found.verdict == "oom_cgroup"
    assert any(f"broken {FAILED}" in line for line in found.missing)
