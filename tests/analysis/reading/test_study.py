from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import make_sweep

from analysis.reading import curve, read_study
from analysis.reading.filters import only
from experiment_utils.errors import UserError
from tests.golden_text import Golden
from tests.memory.files.test_file_kinds import write


@pytest.fixture
def csvs(tmp_path: Path) -> Path:
    """As another program leaves a sweep."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for size in (32, 64):
        for power in (-3, -2.5):
            rows = "step,tokens,loss\n1,100,7.5\n2,200,nan\n3,300," + f"{size / 16 - power}"
            (folder / f"{size}d_lr_{power:g}.csv").write_text(rows)
    (folder / "empty.csv").write_text("")
    return folder


def test_runs_of_a_study_one_by_one(done_run: Any, diverged_run: Any, golden: Golden) -> None:
    study = read_study([str(done_run.path.parent)])
    assert [(run.name[:6], run.state, run.counts) for run in study.runs] == [
        ("32d-lr", "done", True),
        ("32d-lr", "failed", False),
    ]
    golden.text(str(study.runs[1].why_not))
    assert study.notes() == []


def test_several_studies_below_one_folder(done_run: Any, tmp_path: Path) -> None:
    shutil.copytree(done_run.path, tmp_path / "runs" / "other" / "a")
    (tmp_path / "runs" / "default" / ".hidden").mkdir()
    (tmp_path / "runs" / "default" / ".hidden" / "config.yaml").touch()
    study = read_study([str(tmp_path / "runs")])
    assert [run.folder.parent.name for run in study.runs] == ["default", "other"]


def test_the_same_run_twice_is_noted_and_counts_once(done_run: Any, tmp_path: Path, golden: Golden) -> None:
    copy = shutil.copytree(done_run.path, tmp_path / "runs" / "other" / "a")
    (Path(copy) / "status.json").unlink()
    study = read_study([str(tmp_path / "runs")])
    assert [run.folder for run in study.once()] == [done_run.path]
    golden.text(study.notes()[0])


def test_a_folder_that_cannot_be_read_is_skipped_with_a_note(
    done_run: Any, tmp_path: Path, golden: Golden
) -> None:
    lost = done_run.path.parent / "lost"
    lost.mkdir()
    (lost / "metrics.csv").touch()
    study = read_study([str(done_run.path.parent)])
    assert len(study.runs) == 1
    assert [path for path, _ in study.skipped] == [lost]
    golden.text(study.skipped[0][1])
    assert "skipped 1 folder" in study.notes()[0]


def test_a_folder_of_another_user_is_a_row(done_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = done_run.path.parent / "closed"
    closed.mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:  # the user who runs the tests may look into everything
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    study = read_study([str(done_run.path.parent)])
    assert study.skipped == []
    assert {run.name: run.state for run in study.runs}["closed"] == "unreadable"
    assert {run.name: run.counts for run in study.runs}["closed"] is False


def test_nothing_to_read_is_an_error(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("no-runs"):
        read_study([str(tmp_path)])
    with golden.refused("no-such-study"):
        read_study([str(tmp_path / "nowhere")])


def test_csvs_give_last_rows_and_facts_of_their_names(csvs: Path, golden: Golden) -> None:
    study = read_study([str(csvs)], pattern="{model}_lr_{log10_lr}.csv")
    run = next(run for run in study.runs if run.name == "64d_lr_-2.5")
    assert (run.value("model"), run.value("tokens"), run.value("loss")) == ("64d", 300, 6.5)
    assert run.value("lr") == pytest.approx(10**-2.5)
    assert run.state is None
    assert run.counts
    golden.text("\n".join(f"{path.name}: {why}" for path, why in study.skipped))
    assert list(curve(run, ["tokens", "loss"])["tokens"]) == [100, 200, 300]


def test_an_empty_folder_among_others_is_an_error(csvs: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="nothing") as error:
        read_study([str(csvs), str(tmp_path / "nothing")])
    assert error.value.codes == ["no-runs"]


def test_curves_of_csvs_with_texts_in_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('time,"my, note",loss\r\n2026-11-03 10:00,"a, b",2.5\r\n2026-11-03 11:00,"c",2.25\r\n')
    run = read_study([str(path)]).runs[0]
    assert (run.value("time"), run.value("my, note"), run.value("loss")) == ("2026-11-03 11:00", "c", 2.25)
    assert list(curve(run, ["loss"])["loss"]) == [2.5, 2.25]


def test_a_pattern_can_skip_parts(csvs: Path) -> None:
    study = read_study([str(csvs)], pattern="{d_model}d_*.csv")
    assert {run.value("d_model") for run in study.runs} == {32, 64}


@pytest.mark.parametrize("pattern", ["nothing.csv", "{a}{a}.csv", "{1a}.csv"])
def test_a_pattern_must_name_facts(csvs: Path, pattern: str) -> None:
    with pytest.raises(UserError) as error:
        read_study([str(csvs)], pattern=pattern)
    assert error.value.codes == ["pattern"]


def test_a_name_without_a_rate_does_not_match_the_pattern(tmp_path: Path) -> None:
    for rate in ("-2", "400", "nan"):
        (tmp_path / f"64d_lr_{rate}.csv").write_text("step,loss\n1,5\n")
    study = read_study([str(tmp_path)], pattern="{model}_lr_{log10_lr}.csv")
    assert [run.value("lr") for run in study.runs] == [0.01]
    assert "skipped 2 files" in study.notes()[0]


def test_where_takes_columns_with_blanks_in_their_names(tmp_path: Path) -> None:
    for at in (1, 2):
        (tmp_path / f"{at}.csv").write_text(f"Wall time,Value\n{at},5\n")
    assert [run.name for run in only(read_study([str(tmp_path)]), ["Wall time > 1"]).runs] == ["2"]


def test_a_name_in_another_encoding_can_be_printed(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xe9t\xe9.csv", "w") as file:
        file.write("step,loss\n1,5\n")
    run = read_study([str(tmp_path)], pattern="{season}.csv").runs[0]
    assert (run.name, run.value("season"), run.value("loss")) == ("\\udce9t\\udce9", "\\udce9t\\udce9", 5)


def test_no_csv_is_skipped_without_a_note(tmp_path: Path, golden: Golden) -> None:
    """By another way to write its name, by a pipe that would be waited for, by a line that was cut."""
    (tmp_path / "UPPER.CSV").write_text("step,loss\n1,5\n")
    (tmp_path / "torn.csv").write_text("step,loss\n1,5\n2")
    os.mkfifo(tmp_path / "pipe.csv")
    study = read_study([str(tmp_path)])
    assert [(run.name, run.value("loss"), len(run.damage)) for run in study.runs] == [
        ("UPPER", 5, 0),
        ("torn", 5, 1),
    ]
    golden.text(study.runs[1].damage[0])
    golden.text(study.notes()[0])
    assert read_study([str(tmp_path / "UPPER.CSV")]).runs


def test_columns_of_other_programs_that_are_called_as_ours_are_theirs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(
            "identity,diverged,day,tokens,loss\nx,False,2026_11,21200000000000000000,5\n"
        )
    study = read_study([str(tmp_path)])
    assert [run.counts for run in study.runs] == [True, True]
    assert study.notes() == []
    assert (study.runs[0].value("day"), study.runs[0].value("tokens")) == ("2026_11", 2.12e19)


def test_the_curve_of_a_run_leaves_a_torn_line_out(done_run: Any) -> None:
    with open(done_run.path / "metrics.csv", "a") as file:
        file.write("501,2052096,1.9")
    run = read_study([str(done_run.path)]).runs[0]
    found = curve(run, ["tokens", "train_loss", "time"])
    assert len(found["tokens"]) == 500
    assert found["time"][-1] == 62.5
    with pytest.raises(UserError) as error:
        curve(run, ["colour"])
    assert error.value.codes == ["no-such-column"]
    assert {"colour", "step", "tokens", "train_loss"} <= set(re.findall(r"\w+", str(error.value)))


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("model=64d", {"64d_lr_-2.5", "64d_lr_-3"}),
        ("model=6*", {"64d_lr_-2.5", "64d_lr_-3"}),
        ("model!=64d", {"32d_lr_-2.5", "32d_lr_-3"}),
        ("lr>2e-3", {"32d_lr_-2.5", "64d_lr_-2.5"}),
        ("log10_lr = -3", {"32d_lr_-3", "64d_lr_-3"}),
        ("model=32d,64d", {"32d_lr_-2.5", "64d_lr_-2.5", "32d_lr_-3", "64d_lr_-3"}),
        ("loss<=4.5", {"32d_lr_-2.5"}),
    ],
)
def test_where(csvs: Path, condition: str, names: set[str]) -> None:
    study = only(read_study([str(csvs)], pattern="{model}_lr_{log10_lr}.csv"), [condition])
    assert {run.name for run in study.runs} == names


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("modle=64d", "no-such-column"),
        ("model", "condition"),
        ("lr<small", "condition"),
        ("model=96d", "no-run-left"),
    ],
)
def test_where_shows_the_choices(csvs: Path, condition: str, code: str, golden: Golden) -> None:
    study = read_study([str(csvs)], pattern="{model}_lr_{log10_lr}.csv")
    with golden.refused(code):
        only(study, [condition])


def test_keys_of_the_configuration_are_columns(done_run: Any) -> None:
    study = read_study([str(done_run.path)])
    assert study.column("effective_batch") == "training.effective_batch"
    assert study.runs[0].value("training.seq_len") == 128
    with pytest.raises(UserError, match=r"arch\.name") as error:
        study.column("name")
    assert error.value.codes == ["ambiguous-key"]


def test_a_second_name_of_a_run_is_no_second_run(tmp_path: Path) -> None:
    folders = make_sweep(tmp_path / "s", (32,), (0.01, 0.02))
    elsewhere = make_sweep(tmp_path / "elsewhere", (48,), (0.01,))
    (tmp_path / "s" / "latest").symlink_to(folders[1].name)
    (tmp_path / "s" / "loop").symlink_to(".")
    (tmp_path / "s" / "moved").symlink_to(elsewhere[0])
    study = read_study([str(tmp_path / "s")])
    assert [run.name for run in study.runs] == [folders[0].name, folders[1].name, "moved"]
    assert not study.duplicates


@pytest.mark.parametrize("kind", ["zip", "utf-16", "parquet", "html", "git-lfs"])
def test_table_of_another_kind_is_skipped_and_named(kind: str, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "good.csv").write_text("step,loss\n1,2.0\n")
    bad = write(tmp_path / "bad.csv", kind)
    ((path, why),) = read_study([str(tmp_path)]).skipped
    assert path == bad
    assert why.startswith("is ")
    golden.text(why)
