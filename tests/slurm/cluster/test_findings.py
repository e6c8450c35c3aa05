"""What `doctor` finds, on recorded clusters and where there is none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from recorded_slurm import VERSIONS, recorded

from memory.accounting.sacct import Answer
from slurm.__main__ import main
from slurm.cluster import Cluster
from slurm.cluster.findings import FAILS, FINE, MIND, Finding, findings
from slurm.commands.doctor import render
from tests.golden_text import Golden


@pytest.fixture(autouse=True)
def _clients_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.cluster.findings.shutil.which", lambda name: f"/usr/bin/{name}")


def found(cluster: Cluster, folder: Path, sacct: Answer = Answer(0)) -> dict[str, list[Finding]]:  # noqa: B008
    by_name: dict[str, list[Finding]] = {}
    for one in findings(cluster, folder, ask=lambda command, timeout_s: sacct):
        by_name.setdefault(one.name, []).append(one)
    return by_name


def only(findings_of_one: list[Finding]) -> Finding:
    (one,) = findings_of_one
    return one


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_cluster_is_told_of(version: str, tmp_path: Path) -> None:
    cluster = recorded(version)
    told = findings(cluster, tmp_path, ask=lambda command, timeout_s: Answer(0))
    assert [one.level for one in told] == sorted((one.level for one in told), key=[FAILS, MIND, FINE].index)
    assert all(one.do for one in told if one.level != FINE)
    lines = list(render(cluster, told, 80))
    assert lines[-1].startswith("next: ")
    assert all(len(line) <= 80 for line in lines[lines.index("") : -1]), lines
    assert any(name in line for line in lines for name in cluster.partitions)


def test_memory_that_is_limited_by_polling(tmp_path: Path) -> None:
    one = only(found(recorded("20.11"), tmp_path)["memory"])
    assert one.level == MIND
    assert "OverMemoryKill" in one.what
    assert "pread" in one.do


def test_memory_that_nothing_limits_or_shares_out(tmp_path: Path, golden: Golden) -> None:
    config = "SLURM_VERSION = 22.05.8\nTaskPlugin = task/none\nSelectTypeParameters = CR_CPU\n"
    told = found(recorded("20.11", config=Answer(0, config)), tmp_path)["memory"]
    golden.text("\n".join(one.what for one in told))
    config = "SLURM_VERSION = 22.05.8\nTaskPlugin = task/affinity,task/cgroup\nCgroupPlugin = cgroup/v2\n"
    assert only(found(recorded("20.11", config=Answer(0, config)), tmp_path)["memory"]).level == FINE


def test_preemption(tmp_path: Path, golden: Golden) -> None:
    for version in ("20.11", "23.11", "24.11", "25.11"):
        told = found(recorded(version), tmp_path)["preemption"]
        golden.text("\n".join(f"{one.level}: {one.what}" for one in told), version)


def test_arrays_and_limits(tmp_path: Path, golden: Golden) -> None:
    for version, key in (("23.02", "arrays"), ("20.11", "MaxSubmitJobs"), ("24.11", "MaxSubmitJobs")):
        golden.text(only(found(recorded(version), tmp_path)[key]).what, version)
    none = recorded("20.11", config=Answer(0, "SLURM_VERSION = 22.05.8\nMaxArraySize = 0\n"))
    assert only(found(none, tmp_path)["arrays"]).level == MIND


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(127), "no sacct on this machine"),
        (Answer(124), "did not answer within 15 s"),
        (Answer(1, error="sacct: error\nSlurm accounting storage is disabled\n"), "is disabled"),
    ],
)
def test_sacct_missing_slow_or_off(answer: Answer, says: str, tmp_path: Path) -> None:
    one = only(found(recorded("20.11"), tmp_path, answer)["sacct"])
    assert (one.level, says in one.what) == (MIND, True)


def test_a_user_without_an_account_where_one_is_needed(tmp_path: Path) -> None:
    cluster = dataclasses.replace(recorded("20.11"), associations=())
    assert only(found(cluster, tmp_path)["accounts"]).level == FAILS


def test_folders(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "file").write_text("")
    told = found(recorded("20.11"), tmp_path / "runs" / "not" / "there")
    golden.text("\n".join(one.what for one in told["runs_dir"] if one.level != FINE))
    local = dataclasses.replace(recorded("20.11"), settings={"SlurmctldHost[0]": "box(127.0.0.1)"})
    assert only(found(local, tmp_path)["runs_dir"]).level in (FINE, MIND)
    assert "home" not in found(local, tmp_path)


def test_where_there_is_no_slurm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    monkeypatch.setattr("slurm.cluster.findings.shutil.which", lambda name: None)
    monkeypatch.setattr("slurm.commands.doctor.read_cluster", lambda: Cluster(notes=("there is none",)))
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "hydra/launcher=local" in told
    golden.text(told)
    assert main(["doctor", "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert plain["cluster"]["here"] is False
    assert plain["findings"][0]["level"] == FAILS


def test_a_controller_that_does_not_answer(tmp_path: Path) -> None:
    cluster = Cluster(notes=("note",))
    assert "note" in only(found(cluster, tmp_path)["controller"]).what
