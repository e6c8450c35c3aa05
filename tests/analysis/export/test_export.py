"""`python -m analysis export`: what other programs read is what the runs wrote, each step once."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_wandb import FakeWandb

from analysis.__main__ import main
from conf.between_keys.logging_rules import is_missing
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def study(new_run: Callable[..., Any]) -> Path:
    """Two runs that are done, with tags, a webhook and lines of shell; one that diverged; one is queued."""
    for name, lr, seed in (("a", 0.003, 0), ("b", 0.01, 1)):
        made = new_run(name)
        made.config(lr=lr)
        path = made.path / "config.yaml"
        said = path.read_text().replace("\nseed: 0\n", f"\nseed: {seed}\n").replace("tags: []", "tags: [new]")
        said = said.replace("notify: null", "notify: https://hooks.example/SECRET-HOOK")
        path.write_text(said.replace("setup: []", "setup: ['export TOKEN=SECRET-LINE']"))
        made.status()
        made.run(identity=name * 64, results={"val_loss": 2.0, "best": {"step": 20, "val_loss": 1.9}})
        made.losses(20, evals=2, seed=seed)
        made.memory(cycles=1)
    lost = new_run("c")
    lost.config(lr=1.0)
    lost.status("failed", step=5)
    lost.run(identity="c" * 64)
    lost.losses(nan_at=5, evals=0)
    new_run("queued").config(lr=0.5)
    return Path(made.path.parent)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_has_a_row_for_each_number_of_all_runs(
    study: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["export", str(study), "--to", "csv"]) == 0
    assert main(["export", str(study), "--to", "csv"]) == 0
    told = capsys.readouterr().out
    assert " 45 points" in told
    assert str(study / "series.csv") in told
    golden.text(told, numbers=False)
    rows = rows_of(study / "series.csv")
    assert list(rows[0]) == ["run", "model", "lr", "seed", "step", "tokens", "time_s", "series", "value"]
    keys = [(row["run"], row["step"], row["series"]) for row in rows]
    assert len(keys) == len(set(keys)), "a step stands twice"
    for name in "abc":
        written = rows_of(study / name / "metrics.csv")
        found = {int(row["step"]): row for row in rows if (row["run"], row["series"]) == (name, "train_loss")}
        assert [repr(float(row["train_loss"])) for row in written] == [
            repr(float(found[int(row["step"])]["value"])) for row in written
        ]
        assert [row["tokens"] for row in written] == [row["tokens"] for row in found.values()]
    assert {(row["run"], row["lr"], row["seed"]) for row in rows} == {
        ("a", "0.003", "0"), ("b", "0.01", "1"), ("c", "1.0", "0"),
    }  # fmt: skip
    assert [row["value"] for row in rows if row["run"] == "c" and row["series"] == "train_loss"][-1] == "nan"


def test_every_nth_and_where_and_a_place(study: Path, tmp_path: Path) -> None:
    output = tmp_path / "some.csv"
    given = ["export", str(study), "--to", "csv", "--where", "lr<0.005", "--every", "8", "-o", str(output)]
    assert main(given) == 0
    steps = {int(row["step"]) for row in rows_of(output) if row["series"] == "train_loss"}
    assert steps == {1, 8, 10, 16, 20}
    assert {row["run"] for row in rows_of(output)} == {"a"}


def test_json_tells_what_was_written(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(study), "--to", "csv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["points"]) for one in told["written"]] == [("a", 20), ("b", 20), ("c", 5)]
    assert [one["run"] for one in told["left_out"]] == ["queued"]


def test_runs_of_one_name_are_told_apart(study: Path, new_run: Callable[..., Any]) -> None:
    other = study.parent / "other" / "a"
    other.parent.mkdir()
    subprocess.run(["cp", "-r", str(study / "a"), str(other)], check=True)
    told = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps(told | {"identity": "d" * 64}))
    output = study.parent / "all.csv"
    assert main(["export", str(study), str(other.parent), "--to", "csv", "-o", str(output)]) == 0
    assert {row["run"] for row in rows_of(output)} == {f"{study.name}/a", "other/a", "b", "c"}


def test_one_run_in_two_folders_is_exported_once(study: Path) -> None:
    subprocess.run(["cp", "-r", str(study / "a"), str(study / "copy")], check=True)
    assert main(["export", str(study), "--to", "csv"]) == 0
    assert len([row for row in rows_of(study / "series.csv") if row["series"] == "lr"]) == 45


def test_csvs_of_other_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    for rate in ("-2", "-3"):
        lines = ["step,tokens,validation_loss,note", "1,64,5.5,x", "2,128,,y", "3,192,nan,"]
        (tmp_path / f"64d_lr_{rate}.csv").write_text("\n".join(lines) + "\n")
    given = ["export", str(tmp_path), "--to", "csv", "--pattern", "{model}_lr_{log10_lr}.csv"]
    assert main(given) == 2
    golden.text(capsys.readouterr().err)
    output = tmp_path / "out" / "long.csv"
    output.parent.mkdir()
    assert main([*given, "-o", str(output)]) == 0
    rows = rows_of(output)
    assert list(rows[0])[:4] == ["run", "log10_lr", "lr", "model"]
    found = [(row["lr"], row["step"], row["value"]) for row in rows if row["series"] == "validation_loss"]
    assert found == [("0.01", "1", "5.5"), ("0.01", "3", "nan"), ("0.001", "1", "5.5"), ("0.001", "3", "nan")]


def test_rows_that_no_whole_number_counts_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """An epoch of 0.5 is no step 0; a column that is not there is no empty file."""
    (tmp_path / "a.csv").write_text("epoch,loss\n0.5,5\n1.0,4\ninf,3\n")
    (tmp_path / "b.csv").write_text("step,loss\n7,5\n")
    given, output = ["export", str(tmp_path), "--to", "csv", "-o"], tmp_path / "out" / "long.csv"
    output.parent.mkdir()
    assert main([*given, str(output), "--x", "epoch"]) == 0
    golden.text(capsys.readouterr().out, numbers=False)
    rows = rows_of(output)
    assert [row["step"] for row in rows if row["series"] == "loss"] == ["1", "2", "3"]
    assert [row["value"] for row in rows if row["series"] == "epoch"] == ["0.5", "1.0", "inf"]
    assert main([*given, str(output), "--x", "nosuch"]) == 2
    golden.text(capsys.readouterr().err)


@pytest.mark.parametrize("more", [["--every", "0"], ["-o", "/nowhere/at/all.csv"], ["--where", "lr=7"]])
def test_what_cannot_be_done_is_told(
    study: Path, capsys: pytest.CaptureFixture[str], more: list[str], golden: Golden
) -> None:
    assert main(["export", str(study), "--to", "csv", *more]) == 2
    golden.text(capsys.readouterr().err)


def test_following_ends_with_the_runs(
    study: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["export", str(study), "--to", "csv", "--follow", "--where", "state=done,failed"]) == 0
    told = capsys.readouterr().out
    golden.text(told, numbers=False)
    assert {row["step"] for row in rows_of(study / "c" / "series.csv")} == set("12345")
    assert main(["export", str(study / "a" / "metrics.csv"), "--to", "csv", "--follow"]) == 2
    golden.text(capsys.readouterr().err)


@pytest.mark.parametrize("to", ["tensorboard", "wandb"])
def test_a_missing_package_is_told_with_what_installs_it(
    study: Path, to: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("conf.between_keys.logging_rules.find_spec", lambda name: None)
    assert main(["export", str(study), "--to", to]) == 2
    golden.text(capsys.readouterr().err)


def test_exporting_loads_neither_torch_nor_what_is_not_asked_for(study: Path) -> None:
    program = (
        "import sys; from analysis.__main__ import main; main(['export', sys.argv[1], '--to', 'csv']); "
        "print(sorted({'torch', 'numpy', 'wandb', 'tensorboard', 'hydra'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(study)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def needs(package: str) -> None:
    if is_missing(package):
        pytest.skip(f"{package} is not installed: make install-test")


def scalars(folder: Path) -> Any:
    """With TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


@pytest.mark.slow
def test_tensorboard_reads_the_event_files(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("tensorboard")
    for _ in range(2):
        assert main(["export", str(study), "--to", "tensorboard"]) == 0
    assert f"--logdir {study}" in capsys.readouterr().out
    for name in "abc":
        assert len(list((study / name).glob("*tfevents*"))) == 1
        found, written = scalars(study / name), rows_of(study / name / "metrics.csv")
        events = found.Scalars("train_loss")
        assert [event.step for event in events] == [int(row["step"]) for row in written]
        losses = [float(row["train_loss"]) for row in written]
        assert [event.value for event in events] == pytest.approx(losses, rel=1e-6, nan_ok=True)
        assert all(event.wall_time > 1.7e9 for event in events)
    times = [event.wall_time for event in scalars(study / "a").Scalars("train_loss")]
    assert times[1] - times[0] == pytest.approx(0.125)
    assert [event.step for event in scalars(study / "a").Scalars("val_loss")] == [10, 20]
    assert scalars(study / "a").Scalars("results/best/val_loss")[0].value == pytest.approx(1.9)


@pytest.mark.slow
def test_tensorboard_has_the_configuration_and_how_it_ended(study: Path, tmp_path: Path) -> None:
    needs("tensorboard")
    from tensorboard.plugins.hparams import api_pb2, metadata

    assert main(["export", str(study), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    ended = []
    for name in "abc":
        found = scalars(tmp_path / "tb" / name)
        begun = metadata.parse_session_start_info_plugin_data(
            found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        )
        assert begun.hparams["optimizer.lr"].number_value == {"a": 0.003, "b": 0.01, "c": 1.0}[name]
        assert not [key for key in begun.hparams if key.split(".")[0] in ("slurm", "notify", "runs_dir")]
        end = metadata.parse_session_end_info_plugin_data(
            found.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
        )
        ended.append(end.status)
    assert ended == [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE]
    assert not list(study.rglob("*tfevents*"))


@pytest.mark.slow
def test_wandb_has_one_whole_offline_run_for_each_however_often(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("wandb")
    from wandb_files import read_offline

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    for _ in range(2):
        assert main(["export", str(study), "--to", "wandb", "--project", "sweeps"]) == 0
    assert f"{study}/*/wandb/offline-run-*" in capsys.readouterr().out
    for name in "abc":
        found = read_offline(study / name / "wandb")
        written = rows_of(study / name / "metrics.csv")
        assert (found.run.run_id, found.run.project, found.run.display_name) == (name * 64, "sweeps", name)
        assert (found.run.run_group, list(found.run.tags)) == (study.name, [] if name == "c" else ["new"])
        assert [row["_step"] for row in found.history] == [int(row["step"]) for row in written]
        losses = [float(row["train_loss"]) for row in written]
        assert [float(row["train_loss"]) for row in found.history] == pytest.approx(losses, nan_ok=True)
        assert found.config["optimizer"]["lr"] == {"a": 0.003, "b": 0.01, "c": 1.0}[name]
        assert found.exit_code == (1 if name == "c" else 0)
    found = read_offline(study / "a" / "wandb")
    assert found.summary["best/val_loss"] == 1.9
    assert found.history[1]["_timestamp"] - found.history[0]["_timestamp"] == pytest.approx(0.125)
    for path in study.rglob("wandb/**/*"):
        if path.is_file():
            held = path.read_bytes()
            assert not [word for word in (b"0123456789" * 4, b"SECRET") if word in held], path


@pytest.mark.slow
def test_wandb_without_a_key_online_is_an_error_and_no_question(study: Path) -> None:
    needs("wandb")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment |= {"WANDB_MODE": "online", "HOME": str(study), "NETRC": str(study / "none")}
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "export", str(study), "--to", "wandb", "--where", "run=a"],
        cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "W&B refuses a: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    found = FakeWandb()
    yield found
    found.close()


def export_to(server: FakeWandb, mode: str, study: Path, *more: str) -> str:
    """As a user does, with a key."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment |= {"WANDB_MODE": mode, "WANDB_BASE_URL": server.address, "WANDB_API_KEY": "0123456789" * 4}
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "export", str(study), "--to", "wandb", *more],
        cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_wandb_online_goes_on_with_the_run_on_the_server(study: Path, server: FakeWandb) -> None:
    needs("wandb")
    path = study / "a" / "metrics.csv"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:13]))
    assert " 12 points" in export_to(server, "online", study, "--where", "run=a")
    assert " 0 points" in export_to(server, "online", study, "--where", "run=a")
    path.write_text(whole)
    assert " 33 points" in export_to(server, "online", study)
    steps = {run[0]: [line["_step"] for line in lines] for run, lines in server.history.items()}
    assert steps == {"a": list(range(1, 21)), "b": list(range(1, 21)), "c": list(range(1, 6))}
    losses = [float(row["train_loss"]) for row in rows_of(path)]
    assert [line["train_loss"] for line in server.history["a" * 64]] == pytest.approx(losses)
    told = json.loads(server.runs["b" * 64]["config"])
    assert told["optimizer"]["value"]["lr"] == 0.01
    assert server.runs["b" * 64]["displayName"] == "b"
    received = b"".join(server.received)
    for word in (b"SECRET", b"0123456789" * 4, str(ROOT).encode()):
        assert word not in received
    assert not [asked for asked in server.asked if "otel" in asked], "W&B sends reports of itself"


@pytest.mark.slow
def test_wandb_offline_sends_nothing(study: Path, server: FakeWandb) -> None:
    needs("wandb")
    export_to(server, "offline", study)
    assert server.received == []


def test_wandb_modes(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    from analysis.export.wandb import mode

    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert mode() == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert mode() == "online"
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert mode() == "offline"
    monkeypatch.setenv("WANDB_MODE", "on")
    with golden.refused("no-such-mode"):
        mode()
