"""`logging.to`: the series stand elsewhere too, each step once, and nothing that fails there stops a run."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked import killed_at
from ranked import RankProcesses
from tiny_run import (
    ROOT,
    copy_of,
    make_run,
    metrics_without_clock,
    mixed_config,
    outcome,
    run_core,
    run_here,
    tiny_config,
)

import core
from conf import Config
from conf.between_keys.logging_rules import is_missing
from conf.schema import Logging
from tests.golden_text import Golden
from training.attempt.run_files import Status, read_run, read_status, run_lock
from training.report import external_logger as logger_module

KEY = "0123456789abcdef" * 2 + "01234567"


def logging_to(to: str, config: Config, **more: Any) -> Config:
    return dataclasses.replace(config, logging=Logging(every_s=60.0, to=to, **more))


def needs(package: str) -> None:
    if is_missing(package):
        pytest.skip(f"{package} is not installed: make install-test")


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def steps_of(folder: Path, series: str = "train_loss") -> list[int]:
    """In series.csv."""
    return [int(row["step"]) for row in rows_of(folder / "series.csv") if row["series"] == series]


def noted(folder: Path) -> dict[str, str]:
    """What run.json has of the last attempt's logger."""
    found: dict[str, str] = read_run(folder)["attempts"][-1].get("logging", {})
    return found


def wait_until(happened: Callable[[], object], patience_s: float = 120) -> None:
    until = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < until, "it has not happened"
        time.sleep(0.05)


def loggers_of(folder: Path) -> list[int]:
    """Processes that follow the folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if "--follow" in words and str(folder.resolve()) in words:
            found.append(process.info["pid"])
    return found


COMMAND = "python -m analysis export "


def warnings_of(folder: Path) -> list[str]:
    return [line for line in (folder / "log.txt").read_text().splitlines() if COMMAND in line]


def stub(folder: Path, package: str, text: str) -> str:
    """A package of that name, for PYTHONPATH."""
    (folder / "stubs" / package).mkdir(parents=True)
    (folder / "stubs" / package / "__init__.py").write_text(text)
    return str(folder / "stubs")


def test_the_series_are_the_run_s_own_and_the_run_is_as_without(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    folder = make_run(logging_to("csv", config))
    assert run_here(folder, "--quiet").returncode == 0
    written = rows_of(folder / "metrics.csv")
    rows = rows_of(folder / "series.csv")
    for name in ("train_loss", "val_loss", "lr", "grad_norm", "tokens_per_s"):
        found = {row["step"]: float(row["value"]) for row in rows if row["series"] == name}
        assert found == {row["step"]: float(row[name]) for row in written if row[name]}, name
    keys = [(row["step"], row["series"]) for row in rows]
    assert len(keys) == len(set(keys))
    began_s = read_run(folder)["attempts"][0]["started_s"]
    assert all(began_s < float(row["time_s"]) < time.time() for row in rows)
    assert noted(folder) == {"to": "csv"}
    assert not (folder / "logger.txt").exists()
    assert not warnings_of(folder)
    assert loggers_of(folder) == []
    alone = copy_of(config, tmp_path / "alone")
    assert run_here(alone, "--quiet").returncode == 0
    assert outcome(alone) == outcome(folder)
    assert alone.name == folder.name, "where the series go is in the identity"


@pytest.mark.slow
def test_a_killed_run_goes_on_with_its_series(tmp_path: Path) -> None:
    folder = make_run(logging_to("csv", tiny_config(tmp_path)))
    killed = killed_at("checkpoint:before_rename", lambda: core.main([str(folder), "--quiet"]), count=5)
    assert killed
    wait_until(lambda: not loggers_of(folder))
    assert steps_of(folder)[:20] == list(range(1, 21)), "what the killed run had written was lost"
    assert run_here(folder, "--quiet").returncode == 0
    assert steps_of(folder) == list(range(1, 41))
    attempts = read_run(folder)["attempts"]
    rows = {int(row["step"]): float(row["time_s"]) for row in rows_of(folder / "series.csv")}
    second_s, at = attempts[1]["started_s"], attempts[1]["resumed_from_step"]
    assert 0 < at < 21
    assert all((time_s > second_s) == (step > at) for step, time_s in rows.items())


def test_a_run_that_diverges_has_its_last_row_in_the_series(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr=1e30))
    folder = make_run(logging_to("csv", config))
    assert run_here(folder, "--quiet").returncode == 1
    assert steps_of(folder) == [int(row["step"]) for row in rows_of(folder / "metrics.csv")]
    assert loggers_of(folder) == []


@pytest.mark.slow
def test_sources_of_a_mixture(tmp_path: Path) -> None:
    folder = make_run(logging_to("csv", mixed_config(tmp_path), every_steps=10))
    assert run_here(folder, "--quiet").returncode == 0
    assert steps_of(folder) == [1, 10, 20, 30, 40]
    assert steps_of(folder, "train_loss/long") == [1, 10, 20, 30, 40]
    assert steps_of(folder, "val_loss/short") == [10, 20, 30, 40]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("raise ImportError('libsomething.so.1: not found')", "libsomething.so.1:"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os; os._exit(3)", "3"),
        (f"raise RuntimeError('the key {KEY} is wrong')", "$WANDB_API_KEY"),
    ],
)
def test_a_logger_that_fails_costs_a_warning(
    tmp_path: Path, text: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", stub(tmp_path, "tensorboard", text))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    config = tiny_config(tmp_path)
    folder = make_run(logging_to("tensorboard", config))
    assert run_here(folder, "--quiet").returncode == 0
    (warning,) = warnings_of(folder)
    found = noted(folder)
    assert (found["to"], cause in found["ended"].split()) == ("tensorboard", True)
    assert found["ended"] in warning
    assert warning.split(COMMAND)[1].split()[:3] == [str(folder.resolve()), "--to", "tensorboard"]
    assert read_status(folder)["state"] == "done"
    for path in folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_a_logger_that_hangs_is_waited_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    child = "import subprocess, time; subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
    monkeypatch.setenv("PYTHONPATH", stub(tmp_path, "tensorboard", child))
    monkeypatch.setattr(logger_module, "ENDS_WITHIN_S", 1.0)
    folder = make_run(logging_to("tensorboard", tiny_config(tmp_path)))
    assert run_here(folder, "--quiet").returncode == 0
    golden.text(noted(folder)["ended"])
    assert loggers_of(folder) == []
    assert not [one for one in psutil.Process().children(recursive=True) if one.name() == "sleep"]


def test_a_disk_that_is_full_for_the_logger_alone(tmp_path: Path) -> None:
    """The place of its file is a folder: what a full disk is to a rename."""
    folder = make_run(logging_to("csv", tiny_config(tmp_path)))
    (folder / "series.csv").mkdir()
    assert run_here(folder, "--quiet").returncode == 0
    assert "IsADirectoryError" in noted(folder)["ended"]
    assert len(warnings_of(folder)) == 1


def test_a_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(logger_module.subprocess, "Popen", refuse)
    folder = make_run(logging_to("csv", tiny_config(tmp_path)))
    assert run_here(folder, "--quiet").returncode == 0
    golden.text(noted(folder)["ended"])


def test_signals_to_all_of_a_job_leave_it_to_the_run(tmp_path: Path) -> None:
    folder = make_run(logging_to("csv", tiny_config(tmp_path)))
    (folder / "metrics.csv").write_text("step,tokens,train_loss\n1,64,2.0\n")
    Status(folder, 1).update()
    beside = logger_module.Logger([folder])
    with run_lock(folder):
        beside.start(Logging(to="csv"))
        wait_until(lambda: (folder / "series.csv").exists() and steps_of(folder) == [1])
        (pid,) = loggers_of(folder)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            os.kill(pid, number)
        with open(folder / "metrics.csv", "a") as more:
            more.write("2,128,1.5\n")
        assert psutil.Process(pid).is_running()
        beside.close()
    assert steps_of(folder) == [1, 2]
    assert loggers_of(folder) == []


def test_a_missing_package_is_told_before_the_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conf.composing.check import check

    monkeypatch.setattr("conf.between_keys.logging_rules.find_spec", lambda name: None)
    (problem,) = check({"logging": {"to": "wandb"}})[1]
    assert "'highwater[wandb]'" in problem.what
    monkeypatch.undo()
    (problem,) = check({"logging": {"to": "csv", "project": "p"}})[1]
    assert problem.where == "logging.project"


def test_it_is_in_the_estimate_once(tmp_path: Path) -> None:
    from training.plan.memory_parts import estimate_run

    config = tiny_config(tmp_path)

    def needs_of(config: Config, **more: int) -> int:
        return estimate_run(config, vocab_size=257, micro_batch=2, **more).host_bytes

    for more in ({}, {"together": 2}):
        added = needs_of(logging_to("tensorboard", config), **more) - needs_of(config, **more)
        assert added == 45 << 20


def test_one_that_sees_the_end_before_it_is_told_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger_module.Logger, "_tell", lambda self, reason: pytest.fail(reason))
    folder = make_run(logging_to("csv", tiny_config(tmp_path)))
    (folder / "metrics.csv").write_text("step,tokens,train_loss\n1,64,2.0\n")
    Status(folder, 1).update(state="done")
    beside = logger_module.Logger([folder])
    beside.start(Logging(to="csv"))
    wait_until(lambda: not loggers_of(folder) or psutil.Process(*loggers_of(folder)).status() == "zombie")
    beside.close()
    assert steps_of(folder) == [1]
    assert not (folder / "logger.txt").exists()


@pytest.mark.slow
def test_of_several_ranks_the_first_alone_logs(tmp_path: Path) -> None:
    folder = make_run(logging_to("csv", tiny_config(tmp_path, max_steps=8, evals=2)))
    processes = RankProcesses()
    assert processes.run(folder, 2) == [0, 0]
    processes.close()
    assert steps_of(folder) == list(range(1, 9))
    assert sorted(path.name for path in folder.rglob("series.csv")) == ["series.csv"]


@pytest.mark.slow
def test_of_an_ensemble_each_run_has_its_series(tmp_path: Path) -> None:
    folders = []
    for lr in (0.01, 0.003):
        config = logging_to("csv", tiny_config(tmp_path, max_steps=8, evals=2))
        folders.append(
            make_run(dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr=lr)))
        )
    assert core.main([*map(str, folders), "--quiet"]) == 0
    for folder in folders:
        assert steps_of(folder) == list(range(1, 9))
        assert noted(folder) == {"to": "csv"}
    assert [row["train_loss"] for row in metrics_without_clock(folders[0])] != [
        row["train_loss"] for row in metrics_without_clock(folders[1])
    ]


@pytest.mark.slow
def test_tensorboard_goes_on_in_its_file_through_a_kill(tmp_path: Path) -> None:
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = make_run(logging_to("tensorboard", tiny_config(tmp_path)))
    assert killed_at("checkpoint:before_rename", lambda: core.main([str(folder), "--quiet"]), count=5)
    wait_until(lambda: not loggers_of(folder))
    (path,) = folder.glob("*tfevents*")
    inode = path.stat().st_ino
    with open(path, "ab") as file:
        file.write(b"\x20\x00\x00")  # torn: the kill came while it wrote
    done = run_core(folder)
    assert done.returncode == 0, done.stdout
    (path,) = folder.glob("*tfevents*")
    assert path.stat().st_ino == inode, "a TensorBoard that has it open would not see the rest"
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    found.Reload()
    assert [event.step for event in found.Scalars("train_loss")] == list(range(1, 41))
    assert [event.step for event in found.Scalars("val_loss")] == [10, 20, 30, 40]
    losses = [float(row["train_loss"]) for row in rows_of(folder / "metrics.csv")]
    assert [event.value for event in found.Scalars("train_loss")] == pytest.approx(losses, rel=1e-6)
    assert not warnings_of(folder)


@pytest.mark.slow
def test_wandb_beside_a_run_that_is_killed_and_no_key_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("wandb")
    from wandb_files import read_offline

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = make_run(logging_to("wandb", tiny_config(tmp_path), project="tiny"))
    assert killed_at("checkpoint:before_rename", lambda: core.main([str(folder), "--quiet"]), count=5)
    wait_until(lambda: not loggers_of(folder))
    done = run_core(folder)
    assert done.returncode == 0, done.stdout
    assert not warnings_of(folder)
    found = read_offline(folder / "wandb")
    assert (found.run.run_id, found.run.project) == (read_run(folder)["identity"], "tiny")
    assert [row["_step"] for row in found.history] == list(range(1, 41))
    losses = [float(row["train_loss"]) for row in rows_of(folder / "metrics.csv")]
    assert [row["train_loss"] for row in found.history] == pytest.approx(losses)
    assert found.summary["state"] == "done"
    assert found.summary["best/val_loss"] == read_run(folder)["results"]["best"]["val_loss"]
    held = [path for path in folder.rglob("*") if path.is_file()]
    assert len(held) > 12
    for path in held:
        assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_wandb_without_a_network_costs_a_warning(tmp_path: Path) -> None:
    """Online, with a server that nobody can reach."""
    needs("wandb")
    folder = make_run(logging_to("wandb", tiny_config(tmp_path)))
    told = {"WANDB_MODE": "online", "WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    script = (
        "import sys; sys.path[:0] = [sys.argv[2]]; import core, training.report.external_logger as logger; "
        "logger.ENDS_WITHIN_S = 5.0; sys.exit(core.main([sys.argv[1], '--quiet']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(ROOT)],
        env=os.environ | told, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (warning,) = warnings_of(folder)
    assert noted(folder)["ended"] in warning
    assert read_status(folder)["state"] == "done"
    assert loggers_of(folder) == []
    for path in folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
    json.loads((folder / "run.json").read_text())
