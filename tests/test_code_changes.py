"""The same command after the code has changed: finished runs, unfinished ones, sweeps, ensembles, ranks."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import killed_at
from ranked import RankProcesses
from tiny_run import make_run, metrics_without_clock, outcome, run_here, tiny_config, write_text

import core
from conf import Config
from conf.composing.run_identity import identity
from experiment_utils import atomic_files
from experiments import main
from tests.golden_text import Golden
from training.attempt.begin import CodeChanged
from training.attempt.run_files import read_run, read_status, state_of

pytestmark = pytest.mark.usefixtures("quick_start")

SHORT = {"max_steps": 8, "evals": 2, "checkpoint_every": 5, "eval_tokens": 128}
TINY = (
    "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "model.d_model=16", "model.n_layers=1",
    "model.n_heads=1", "training.seq_len=16", "training.effective_batch=4", "training.max_steps=2",
    "training.eval_tokens=64", "training.evals=1", "training.device=cpu", "training.threads=1",
)  # fmt: skip


def by_earlier_code(folder: Path) -> None:
    """As if its last attempt had been computed by other code."""
    run = read_run(folder)
    code = run["attempts"][-1]["code"]
    record = json.loads((folder / "code" / f"{code['hash']}.json").read_text())
    record["files"] |= {"models/layers/blocks.py": "0" * 16, "models/gone.py": "0" * 16}
    code["hash"] = "earlier"
    atomic_files.write_json(folder / "code" / "earlier.json", record | {"commit": None})
    atomic_files.write_json(folder / "run.json", run)


def files(folder: Path) -> dict[str, bytes]:
    """Without what each start touches: its lock and its log."""
    of_each_start = ("run.lock", "log.txt")
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in of_each_start]
    return {str(path): path.read_bytes() for path in paths}


def stop_behind_a_checkpoint(folder: Path) -> None:
    assert killed_at("checkpoint:after_rename", lambda: run_here(folder))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return tiny_config(tmp_path, **SHORT)


@pytest.fixture
def stopped(config: Config) -> Path:
    """Killed behind its checkpoint of step 4."""
    folder = make_run(config)
    stop_behind_a_checkpoint(folder)
    return folder


def test_unfinished_run_is_not_resumed_by_other_code(config: Config, stopped: Path) -> None:
    by_earlier_code(stopped)
    before = files(stopped)
    done = run_here(stopped)
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("models/layers/blocks.py", "models/gone.py"))
    assert files(stopped) == before
    with pytest.raises(CodeChanged):
        make_run(config)


def test_code_any_resumes_and_is_recorded(config: Config, stopped: Path) -> None:
    by_earlier_code(stopped)
    make_run(dataclasses.replace(config, code="any"))
    assert run_here(stopped).returncode == 0
    first, second = read_run(stopped)["attempts"]
    assert second["resumed_from_step"] == 4
    assert (first["code"]["hash"], second["code"]["differs_from_attempt"]) == ("earlier", 1)
    assert second["code"]["hash"] != "earlier"


def test_same_code_resumes_without_a_word(stopped: Path) -> None:
    assert run_here(stopped).returncode == 0
    second = read_run(stopped)["attempts"][1]
    assert second["resumed_from_step"] == 4
    assert "differs_from_attempt" not in second["code"]
    assert "code=any" not in (stopped / "log.txt").read_text()


def test_run_made_before_code_was_recorded_resumes_with_one_line(stopped: Path, golden: Golden) -> None:
    run = read_run(stopped)
    run["attempts"][0]["code"] = {"commit": None, "dirty": None}
    atomic_files.write_json(stopped / "run.json", run)
    assert run_here(stopped).returncode == 0
    golden.lines((stopped / "log.txt").read_text(), "recorded", numbers=False)


def test_resumed_run_has_the_memory_of_each_attempt_in_its_place(stopped: Path) -> None:
    assert run_here(stopped).returncode == 0
    for path, number in ((stopped / "attempts/1/memory.jsonl", 1), (stopped / "memory.jsonl", 2)):
        assert {json.loads(line)["attempt"] for line in path.read_text().splitlines()} == {number}


def test_finished_run_begins_again_with_the_same_numbers(config: Config, tmp_path: Path) -> None:
    folder = make_run(config)
    assert run_here(folder).returncode == 0
    before, rows = outcome(folder), metrics_without_clock(folder)
    make_run(dataclasses.replace(config, again=True))
    assert state_of(folder) is None
    assert run_here(folder).returncode == 0
    assert outcome(folder) == before
    assert metrics_without_clock(folder / "attempts/1") == rows
    run = read_run(folder)
    assert [(one["attempt"], one.get("again")) for one in run["attempts"]] == [(1, None), (2, True)]
    assert run["attempts"][1]["resumed_from_step"] == 0
    assert "attempt 1, on" not in (folder / "log.txt").read_text()
    assert (
        json.loads((folder / "attempts/1/run.json").read_text())["results"]["val_loss"] == before["val_loss"]
    )


def test_killed_while_it_begins_again_the_run_itself_ends_the_move(
    config: Config, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(point: str) -> None:
        if point == "again:metrics.csv":
            raise Killed

    monkeypatch.setattr(atomic_files, "on_point", kill)
    with pytest.raises(Killed):
        make_run(dataclasses.replace(config, again=True))
    monkeypatch.setattr(atomic_files, "on_point", None)
    assert run_here(stopped).returncode == 0
    assert not (stopped / "again.json").exists()
    assert read_run(stopped)["attempts"][1]["resumed_from_step"] == 0
    assert (stopped / "attempts/1/metrics.csv").exists()


def test_identity_is_not_changed_by_code_and_again(config: Config) -> None:
    of = {identity(dataclasses.replace(config, code=code, again=again), "data")
          for code in ("same", "any") for again in (False, True)}  # fmt: skip
    assert len(of) == 1


def test_ensemble_is_refused_for_a_member_whose_code_changed(config: Config) -> None:
    folders = [make_run(dataclasses.replace(config, seed=seed)) for seed in (0, 1)]
    for folder in folders:
        stop_behind_a_checkpoint(folder)
    by_earlier_code(folders[1])
    assert core.main([*map(str, folders), "--quiet"]) == 2
    assert [len(read_run(folder)["attempts"]) for folder in folders] == [1, 1]
    make_run(dataclasses.replace(config, seed=1, code="any"))
    assert core.main([*map(str, folders), "--quiet"]) == 0
    codes = [read_run(folder)["attempts"][-1]["code"] for folder in folders]
    assert [code.get("differs_from_attempt") for code in codes] == [None, 1]


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankProcesses]:
    found = RankProcesses()
    yield found
    found.close()


@pytest.mark.slow
def test_ranks_are_refused_and_begin_again_together(
    ranks: RankProcesses, config: Config, tmp_path: Path
) -> None:
    stop = {"rank": 1, "step": 7, "what": "kill"}
    folder = make_run(config)
    assert ranks.run(folder, 2, stop)[1] < 0
    by_earlier_code(folder)
    assert ranks.run(folder, 2) == [2, 2]
    make_run(dataclasses.replace(config, again=True))
    assert ranks.run(folder, 2) == [0, 0]
    place = folder / "attempts" / "1"
    assert {"log.rank1.txt", "memory.rank1.jsonl", "log.txt", "metrics.csv"} <= {
        one.name for one in place.iterdir()
    }
    assert len(metrics_without_clock(folder)) == 8


@pytest.mark.slow
def test_sweep_refuses_the_member_whose_code_changed_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "slurm")
    write_text(tmp_path / "my.txt")
    command = ["-m", *TINY, "seed=0,1"]
    assert main(command) == 0
    first, second = sorted(path.parent for path in (tmp_path / "runs").glob("*/*/run.json"))
    atomic_files.write_json(first / "status.json", read_status(first) | {"state": "cancelled"})
    for folder in (first, second):
        by_earlier_code(folder)
    capsys.readouterr()
    caplog.clear()
    assert main(command) == 1
    assert " code=any" in caplog.text
    out = capsys.readouterr().out
    golden.lines(out, second.name, "models/layers/blocks.py", numbers=False)
    assert main([*command, "plan=true"]) == 0
    assert f": {Path('runs', *first.parts[-2:])}" in capsys.readouterr().out
    assert len(read_run(first)["attempts"]) == 1
    assert main([*command, "again=true"]) == 0
    assert [len(read_run(folder)["attempts"]) for folder in (first, second)] == [2, 2]


@pytest.mark.slow
def test_command_says_what_changed_since_a_finished_run(root: Path, tmp_path: Path) -> None:
    """With a checkout that is really edited."""
    code = tmp_path / "code"
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "*.py", "*.yaml", "*.toml"], capture_output=True, text=True
    )
    for name in listed.stdout.split():
        if (root / name).exists() and not name.startswith(("tests/", "benchmarks/")):
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, code / name)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")} | {
        f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", code, *arguments], check=True, env=environment)

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, code / "experiments.py", *TINY, *arguments],
            cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=240,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    write_text(tmp_path / "my.txt")
    assert run()[0] == 0
    (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/*/run.json"))
    path = code / "models" / "layers" / "attention.py"
    path.write_text("# a comment\n" + path.read_text())
    returncode, out, _ = run()
    assert (returncode, "again=true" in out) == (0, False)
    path.write_text(path.read_text() + "\n\nADDED = 1\n")
    before = files(folder)
    returncode, out, _ = run()
    assert returncode == 0
    assert "models/layers/attention.py (+4 -0)" in out
    assert out.splitlines()[-1].endswith("again=true")
    assert before.items() <= files(folder).items()
    returncode, out, err = run("--json")
    assert (returncode, json.loads(out)["state"], "models/layers/attention.py" in err) == (0, "done", True)
    atomic_files.write_json(folder / "status.json", read_status(folder) | {"state": "cancelled"})
    returncode, out, err = run()
    assert returncode == 2
    assert [line.split()[-1] for line in err.splitlines() if "dataset=text" in line] == [
        "code=any",
        "again=true",
    ]
    assert run("again=true")[0] == 0
    told: list[dict[str, Any]] = read_run(folder)["attempts"]
    assert (len(told), (folder / "attempts/1/outcome.json").exists()) == (2, True)
    assert "again=true" not in run()[1]
