"""The ends of jobs and what a cluster does to them, again and again, on clusters that stay up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.harness import RESULTS, save
from tests.local_slurm import LENT, Cluster, NoCluster, cluster
from tests.memory.deaths.cgroups import version_here

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, SIDE_BY_SIDE = "SOAK_SLURM_ROUNDS", "SOAK_SLURM_CLUSTERS"
GOES_ON = "SOAK_SLURM_GO_ON"
"""Set: the rounds of the saved result count, right and wrong ones, where a sitting of hours was cut short."""
NAME = "soak_slurm"
RESULT = RESULTS / f"{NAME}.json"
ROUND_S = 3600.0
NOTHING: dict[str, Any] = {"rounds": 0, "minutes": 0.0, "cases": {}, "wrong": []}
HERE = "tests/slurm"
CASES = {
    "array of 6 (success, exception, OOM, timeout, scancel, full disk)": "test_real_array.py::test_six_ends",
    "preemption, announced by the job's signal": "test_real_interference.py::test_preemption[on]",
    "preemption, announced by SIGTERM": "test_real_interference.py::test_preemption[off]",
    "preemption of a job that is not requeued": "test_real_interference.py::test_preempted_for_good",
    "node crash": "test_real_interference.py::test_lost_node",
    "double start": "test_real_interference.py::test_a_job_that_runs_twice",
    "slurmctld restart": "test_real_interference.py::test_a_new_controller_and_an_administrator",
    "timeout and on to the same losses": "test_real_jobs.py::test_timeout_and_on_to_the_same_losses",
    "sacct silent": "test_real_truth.py::test_sacct_is_silent",
    "sacct down": "test_real_truth.py::test_sacct_is_down",
    "slurmctld silent": "test_real_truth.py::test_slurmctld_is_silent",
    "bad partition": "submit/test_real_submit.py::test_refused_before_the_first_sbatch",
    "array over the limit": "submit/test_real_submit.py::test_more_runs_than_an_array_may_have",
    "edited after submitting": "submit/test_real_submit.py::test_what_was_composed_is_what_runs",
    "submitted from inside a job": "submit/test_real_submit.py::test_from_inside_a_job",
    "two shells at once": "submit/test_real_submit.py::test_two_shells_that_submit_the_same_at_once",
}
"""Each has its test, which CI runs once: it asserts the state and the words that `status` tells."""


@dataclass(frozen=True)
class Wrong:
    """told: what the test said, with all that was known of the job then."""

    case: str
    round: int
    told: str


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """With limits of the kernel; SOAK_SLURM_CLUSTERS of them, each with its own rounds."""
    if version_here() != 1:
        pytest.skip("limits by cgroup need the v1 memory controller here: Slurm without systemd knows no v2")
    with ExitStack() as up:
        try:
            yield [up.enter_context(cluster("cgroup")) for _ in range(int(os.environ.get(SIDE_BY_SIDE, "2")))]
        except NoCluster as error:
            pytest.skip(str(error))


def one_round(where: Cluster, number: int, folder: Path) -> list[Wrong]:
    """Every case once, in a process of its own: one that hangs or dies ends this round alone."""
    where.script("start")  # a round before may have left a node down
    report, said = folder / f"round{number}.xml", folder / f"round{number}.txt"
    with open(said, "w") as out:
        try:
            subprocess.run(
                [
                    sys.executable, "-m", "pytest", "-m", "slow or privileged", "-p", "no:cacheprovider",
                    f"--basetemp={folder / f'round{number}'}", f"--junitxml={report}",
                    *(f"{HERE}/{test}" for test in CASES.values()),
                ],
                cwd=ROOT, env={**os.environ, LENT: where.to_json()}, stdout=out, stderr=out, timeout=ROUND_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            out.write(f"the round took longer than {ROUND_S:.0f} s\n")
    passed, failed = read_report(report)
    return [
        Wrong(case, number, failed.get(name) or said.read_text()[-4000:])
        for case, test in CASES.items()
        if (name := test.rpartition("::")[2]) not in passed
    ]


def read_report(path: Path) -> tuple[set[str], dict[str, str]]:
    """(tests that passed, those that did not with what they said) of a round's junit file."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    if path.exists():
        for test in ElementTree.parse(path).iter("testcase"):
            told = "\n".join(f"{part.get('message')}\n{part.text}" for part in test)
            name = str(test.get("name"))
            failed.update({name: told}) if len(test) else passed.add(name)
    return passed, failed


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_case_ends_as_it_should(clusters: list[Cluster], tmp_path: Path) -> None:
    """Writes its counts to benchmarks/results/soak_slurm.json, after each round."""
    earlier = json.loads(RESULT.read_text()) if os.environ.get(GOES_ON) and RESULT.exists() else NOTHING
    result, wanted = with_round(earlier, None, 0.0), int(os.environ.get(ROUNDS, "20"))
    numbers, is_over, saving = iter(range(result["rounds"], wanted)), threading.Event(), threading.Lock()
    wrong: list[Wrong] = []

    def rounds_of(where: Cluster) -> None:
        nonlocal result
        for number in numbers:
            if is_over.is_set():
                return
            began_s = time.monotonic()
            found = one_round(where, number, tmp_path)
            with saving:
                wrong.extend(found)
                result = with_round(result, found, (time.monotonic() - began_s) / 60)
                save(NAME, result)

    with ThreadPoolExecutor(len(clusters)) as pool:
        try:
            list(pool.map(rounds_of, clusters))
        finally:
            is_over.set()  # after Ctrl-C no more rounds begin
    assert result["rounds"] == max(wanted, earlier["rounds"])
    assert not wrong, "\n\n".join(f"{one.case}, round {one.round}:\n{one.told}" for one in wrong)


def with_round(result: dict[str, Any], wrong: list[Wrong] | None, minutes: float) -> dict[str, Any]:
    """The counts with those of one more round; None: of none. minutes: of one cluster."""
    none, of_round = {"right": 0, "wrong": 0}, {one.case for one in wrong or ()}
    cases = {case: none | result["cases"].get(case, none) for case in CASES}
    for case in CASES if wrong is not None else ():
        word = "wrong" if case in of_round else "right"
        cases[case] = cases[case] | {word: cases[case][word] + 1}
    told = [
        {"case": one.case, "round": one.round, "told": one.told.strip().partition("\n")[0][:300]}
        for one in wrong or ()
    ]
    return {
        "what": "cases that a real Slurm on this machine was put through; right: every run ended in the "
        "state, and was told of in the words, that the case has",
        "rounds": result["rounds"] + (wrong is not None), "minutes": round(result["minutes"] + minutes, 1),
        "cases": cases, "wrong": result["wrong"] + told,
    }  # fmt: skip


def test_what_a_round_reports(tmp_path: Path) -> None:
    """A case that failed, or of which nothing is told, counts as wrong; rounds add up."""
    report = tmp_path / "round.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="test_fine"/><testcase name="test_skipped"><skipped '
        'message="root"/></testcase><testcase name="test_bad[on]"><failure message="timeout">line'
        "</failure></testcase></testsuite></testsuites>"
    )
    passed, failed = read_report(report)
    assert passed == {"test_fine"}
    assert failed == {"test_skipped": "root\nNone", "test_bad[on]": "timeout\nline"}
    assert read_report(tmp_path / "nothing.xml") == (set(), {})
    case = next(iter(CASES))
    found = with_round(with_round(NOTHING, [], 1.5), [Wrong(case, 1, "why\nmore")], 2.0)
    assert (found["rounds"], found["minutes"], found["cases"][case]) == (2, 3.5, {"right": 1, "wrong": 1})
    assert found["wrong"] == [{"case": case, "round": 1, "told": "why"}]


def test_each_case_is_a_test_that_is_there() -> None:
    for test in CASES.values():
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / HERE / path).read_text(), test
