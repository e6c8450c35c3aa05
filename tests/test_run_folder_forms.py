"""Run folders of every form that earlier versions have written are read whole, and resumed without a loss.

tests/golden/run_folders: a run of six steps by the version that first wrote each form (memory.jsonl: some of
its records): `first`; `mixture` has sources.csv; `peaks` has peaks in memory.jsonl; `supervised` has
outcome.json and bits per byte; `now` is of the version before this file.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from analysis.reading.facts import facts_of
from conf.composing.check import to_config
from conf.composing.run_identity import identity
from experiment_utils.run_folder import RunFolder
from slurm.status import state_of_run
from training.attempt.run_files import read_config, read_run
from training.report.metrics import COLUMNS, SOURCE_COLUMNS, MetricsFile, RowsFile, SourcesFile, cut_records

FORMS = sorted(Path(__file__).parent.glob("golden/run_folders/*/*"))
each_form = pytest.mark.parametrize("golden", FORMS, ids=lambda path: path.parent.name)


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden, tmp_path / golden.name))


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_there_is_a_folder_of_each_form() -> None:
    assert [path.parent.name for path in FORMS] == ["first", "mixture", "now", "peaks", "supervised"]


@each_form
def test_every_file_is_read_whole(golden: Path) -> None:
    run, facts = RunFolder(golden), facts_of(golden)
    assert run.column("step") == [1, 2, 3, 4, 5, 6]
    assert {record["step"] for record in run.evals} == {3, 6}
    assert {record["stage"] for record in run.stage_records} >= {"start", "train", "finish"}
    assert run.status["state"] == "done"
    assert facts["values"]["step"] == 6
    assert facts["values"]["val_loss"] == run.evals[-1]["loss"]
    assert (run.damage, facts["damage"]) == ([], [])
    assert state_of_run(golden).state == "done"


@each_form
def test_its_configuration_has_the_identity_of_its_name(golden: Path) -> None:
    config, run = to_config(read_config(golden)), read_run(golden)
    found = identity(config, run["data"]["fingerprint"])
    assert found == run["identity"]
    assert golden.name.endswith(found[:8])


@each_form
def test_resuming_keeps_every_row(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    MetricsFile(folder / "metrics.csv", 6).close()
    cut_records(folder / "evals.jsonl", 6, [3, 6])
    if "sources.csv" in before:
        SourcesFile(folder / "sources.csv", 6).close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@each_form
@pytest.mark.parametrize("added", [("width",), ("width", "depth")])
def test_a_version_with_more_columns_keeps_every_row(folder: Path, added: tuple[str, ...]) -> None:
    for name, columns in (("metrics.csv", COLUMNS), ("sources.csv", SOURCE_COLUMNS)):
        path = folder / name
        if not path.exists():
            continue
        before = rows(path)
        RowsFile(path, 6, (*columns, *added)).close()
        blank = dict.fromkeys(added, "")
        assert rows(path) == [one | blank for one in before]
        RowsFile(path, 6, columns).close()  # and back again
        assert rows(path) == [one | blank for one in before]
        assert [one.name for one in folder.glob(f"{name}.old-*")] == [f"{name}.old-1"]
    assert RunFolder(folder).damage == []
