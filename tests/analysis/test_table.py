"""`python -m analysis table`."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import make_one, make_sweep, say

from analysis.__main__ import main
from experiment_utils.extras import install_command
from tests.golden_text import Golden


@pytest.fixture
def study(done_run: Any, diverged_run: Any) -> str:
    return str(done_run.path.parent)


def test_every_run_is_a_row_and_those_that_died_are_told(
    study: str, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["table", study]) == 0
    told = capsys.readouterr().out
    rows = [line.split() for line in told.splitlines() if line.startswith("32d-lr")]
    assert [row[0] for row in rows[:2]] == ["32d-lr0.003-seed0-6ad2926b", "32d-lr1-seed0-0badf00d"]
    golden.text(told)


def test_json_has_no_nan_and_all_columns(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", study, "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))
    first, second = told["runs"]
    assert (first["state"], first["model"], first["tokens"]) == ("done", "32d", 500 * 4096)
    assert second["train_loss"] is None
    assert second["diverged"] is True
    assert told["counts"] == {"done": 1, "failed": 1}


def test_device_is_shown_if_a_run_had_a_gpu(
    study: str, done_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def header() -> list[str]:
        assert main(["table", study]) == 0
        return next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("run "))

    def devices() -> list[str]:
        assert main(["table", study, "--json"]) == 0
        return [run["device"] for run in json.loads(capsys.readouterr().out)["runs"]]

    assert "device" not in header()
    gpu = {"auto": {"device": "cuda"}, "attempts": [{"device": {"kind": "cuda", "name": "H100"}}]}
    for more, shown in (
        (gpu, "H100"),
        (gpu | {"attempts": [{"attempt": 1}]}, "cuda"),
        ({"attempts": [[]]}, "cpu"),
    ):
        done_run.run(**more)
        assert devices() == [shown, "cpu"]
    done_run.run(**gpu)
    assert "device" in header()


def test_csv_holds_numbers_in_full(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", study, "--json"])
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert main(["table", study, "--csv", "--columns", "run,val_loss,training.seq_len,tags"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["val_loss"]) for row in rows] == [run["val_loss"] for run in runs]
    assert rows[0]["training.seq_len"] == "128"


def test_parquet_without_pyarrow_names_the_extra(
    study: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["table", study, "--parquet"]) == 2
    assert install_command("parquet") in capsys.readouterr().err


def test_a_file_is_written_whole(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(["table", study, "--parquet", "-o", str(tmp_path / "t.parquet")]) == 0
    table = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["state"] == ["done", "failed"]
    assert isinstance(table["val_loss"][0], float)
    assert main(["table", study, "--md", "-o", str(tmp_path / "t.md")]) == 0
    assert (tmp_path / "t.md").read_text().splitlines()[1].startswith("| --- |")
    assert main(["table", study, "--md", "-o", str(tmp_path / "no" / "t.md")]) == 2
    golden.text(capsys.readouterr().err)


def test_sorted_with_what_has_no_number_last(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    for sort, first in (
        (["train_loss"], "32d-lr0.003"),
        (["train_loss", "--reverse"], "32d-lr0.003"),
        (["lr", "--reverse"], "32d-lr1-"),
    ):
        main(["table", study, "--json", "--sort", *sort])
        assert json.loads(capsys.readouterr().out)["runs"][0]["run"].startswith(first)


@pytest.mark.parametrize(
    "arguments", [["--columns", "vall_loss"], ["--sort", "colour"], ["--where", "model=64d"]]
)
def test_mistakes_exit_2(
    study: str, arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["table", study, *arguments]) == 2
    golden.text(capsys.readouterr().err)


def test_duplicates_are_told(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(Path(study) / "32d-lr0.003-seed0-6ad2926b", Path(study) / "copy")
    main(["table", study, "--json"])
    found = json.loads(capsys.readouterr().out)["duplicates"]
    assert Path(found[0]["folders"][0]).name == "32d-lr0.003-seed0-6ad2926b"


@pytest.mark.parametrize("form", ["--csv", "--md"])
def test_what_an_export_leaves_out_is_told_beside_it(
    study: str, form: str, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (Path(study) / "lost").mkdir()
    (Path(study) / "lost" / "metrics.csv").touch()
    assert main(["table", study, form]) == 0
    out, error = capsys.readouterr()
    assert "lost" not in out
    golden.text(error)


def test_a_folder_of_other_csvs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "8d_a.csv").write_text("step,flops,loss\n1,1e9,5.5\n2,2e9,5.25\n")
    given = ["table", str(tmp_path), "--pattern", "{model}_a.csv", "--x", "flops", "--y", "loss"]
    assert main(given) == 0
    assert "8d_a  8d     2e+09  5.2500" in capsys.readouterr().out


def test_a_csv_of_another_program_that_ended_without_a_number_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "a.csv").write_text("step,loss\n1,5.5\n2,nan\n")
    (tmp_path / "b.csv").write_text("step,loss\n1,5.5\n2,5\n3\n")
    assert main(["table", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    golden.text(page)


@pytest.mark.parametrize(
    ("rates", "seeds"), [((0.01,), 1), ((0.01,), 2), ((0.01, 0.02), 1), ((0.01, 0.02, 0.03), 1)]
)
def test_what_it_says_to_type_next_can_be_typed(
    tmp_path: Path, rates: tuple[float, ...], seeds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sweep(tmp_path / "s", (32,), rates, seeds)
    assert main(["table", str(tmp_path / "s"), "--where", "model=32d"]) == 0
    line = capsys.readouterr().out.rpartition("next: python -m analysis ")[2]
    typed = shlex.split(line.partition("   (")[0])
    assert "model=32d" in typed
    assert main(typed) == 0


def test_a_row_is_one_line_whatever_its_notes_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    say(make_one(tmp_path / "s", 32, 0.01, 0), notes="first\nsecond \x1b[31mred")
    for form in ([], ["--md"]):
        assert main(["table", str(tmp_path / "s"), "--columns", "notes", *form]) == 0
        golden.text(capsys.readouterr().out)


def test_parquet_of_columns_of_numbers_and_words(tmp_path: Path) -> None:
    """As training.micro_batch has them, `auto` in one run and 8 in another."""
    pq = pytest.importorskip("pyarrow.parquet")
    for name, batch, tokens in (("a", "auto", 2**53), ("b", "8", 2**70)):
        (tmp_path / f"{name}.csv").write_text(f"batch,tokens\n{batch},{tokens}\n")
    output = tmp_path / "t.parquet"
    assert main(["table", str(tmp_path), "--parquet", "-o", str(output)]) == 0
    assert pq.read_table(output).to_pydict() == {
        "run": ["a", "b"], "batch": ["auto", "8"], "tokens": [float(2**53), float(2**70)]
    }  # fmt: skip


def test_neither_torch_nor_numpy_is_loaded(study: str, root: Path) -> None:
    code = (
        "import sys; from analysis.__main__ import main; main(['table', sys.argv[1], '--where', 'lr<1']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'scipy', 'pandas')))"
    )
    done = subprocess.run([sys.executable, "-c", code, study], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["-o", "out.txt"]])
def test_a_path_in_another_encoding_ends_nothing(tmp_path: Path, root: Path, form: list[str]) -> None:
    with open(os.fsencode(tmp_path) + b"/\xe9t\xe9.csv", "w") as file:
        file.write("step,loss\n1,5\n")
    with open(os.fsencode(tmp_path) + b"/\xe9.csv", "w") as file:
        file.write("")
    command = [sys.executable, "-m", "analysis", "table", str(tmp_path), *form]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = (tmp_path / "out.txt").read_text() if "-o" in form else done.stdout
    told = json.loads(told)["runs"][0]["run"] if "--json" in form else told
    assert r"\udce9t\udce9" in told
