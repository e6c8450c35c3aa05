"""A run that another user has closed is a row, or one line, in every command: never a traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.closed import run_as_anybody
from tests.tiny_run import make_run, run_here, tiny_config

GOLDEN = Path(__file__).parent / "golden" / "run_folders" / "now" / "16d-lr0.003-seed0-4da9f7a7"
_EVERY_COMMAND = """
import contextlib, io, json, os, sys
import analysis.__main__, memory.__main__, slurm.__main__, training.__main__
mains = {"analysis": analysis, "memory": memory, "slurm": slurm, "training": training}
told = []
for folder, line in json.loads(sys.argv[1]):
    os.chdir(folder)
    room, *words = line.split()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = mains[room].__main__.main(words)
        except SystemExit as error:
            code = error.code
        except BaseException as error:
            code = repr(error)
    told.append([folder, line, code, out.getvalue() + err.getvalue()])
print(json.dumps(told))
"""
RUN_FOLDER, LISTED = "run folder", "listed, not entered"
CLOSED = "closed-lr0.003-seed0-4da9f7a7"
WITH_A_ROW = (
    "slurm status s", "slurm cancel s --dry-run", "analysis table s",
    "analysis curves s -o c.png", "analysis export s --to csv -o x.csv", "analysis report s -o r.html",
    "analysis stale s",
)  # fmt: skip
"""They name the closed run and answer about the other one."""
OTHERS = (
    "slurm status", "slurm resubmit s --dry-run", "slurm clean s", "analysis best-lr s", "analysis fit s",
    "analysis memory s", "analysis compare s --by seed", *(
        f"{command} runs/s/{CLOSED}" for command in (
            "slurm status", "slurm why", "slurm logs", "memory explain", "memory report", "memory watch",
            "analysis table", "training eval", "training sample",
        )
    ),
)  # fmt: skip


def make_study(folder: Path) -> Path:
    study = folder / "runs" / "s"
    shutil.copytree(GOLDEN, study / GOLDEN.name)
    shutil.copytree(GOLDEN, study / CLOSED)
    return study


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make_study(tmp_path)


def close(study: Path, form: str) -> None:
    closed = study / CLOSED
    if form == "study":
        study.chmod(0)
    elif form == RUN_FOLDER:
        closed.chmod(0)
    elif form == LISTED:
        closed.chmod(0o400)
    else:
        for path in closed.iterdir():
            path.chmod(0)


FORMS = (RUN_FOLDER, LISTED, "files", "study")
Answers = dict[str, tuple[int | str, str]]
"""Exit code and output of each command."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """Answers by the form of the closed run, of one process, whose imports take most of its time."""
    studies = {form: make_study(tmp_path_factory.mktemp("closed")) for form in FORMS}
    for form, study in studies.items():
        close(study, form)
    places = {str(study.parents[1]): form for form, study in studies.items()}
    commands = [(place, line) for place in places for line in (*WITH_A_ROW, *OTHERS)]
    found = run_as_anybody(_EVERY_COMMAND, json.dumps(commands), cwd=studies[FORMS[0]].parents[1])
    studies["study"].chmod(0o755)
    assert found.returncode == 0, found.stderr
    by_form: dict[str, Answers] = {form: {} for form in FORMS}
    for place, line, code, text in json.loads(found.stdout):
        by_form[places[place]][line] = code, text
    return by_form


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_no_command_ends_in_a_traceback(answers: dict[str, Answers], form: str) -> None:
    told = answers[form]
    assert {line: code for line, (code, _) in told.items() if code not in (0, 1, 2)} == {}
    if form != "study":
        assert [line for line in WITH_A_ROW if told[line][0] or CLOSED not in told[line][1]] == []
        for line in ("slurm status", "slurm resubmit s --dry-run", "analysis stale s", "analysis memory s"):
            assert "unreadable" in told[line][1]
        for command in ("analysis best-lr s", "analysis fit s"):
            assert CLOSED in told[command][1], command
            assert "training.seq_len=" in told[command][1]  # the command is of the run that can be read
    else:
        assert "runs/s" in told["slurm status"][1]


def test_a_row_that_could_not_be_read_is_not_remembered(study: Path) -> None:
    for number in range(32):
        shutil.copytree(GOLDEN, study / f"more{number}-4da9f7a7")
    close(study, "files")
    script = "import sys; from analysis.__main__ import main; sys.exit(main(['table', 's', '--json']))"
    states = []
    for _ in range(2):
        found = run_as_anybody(script, cwd=study.parents[1])
        rows = {row["run"]: row for row in json.loads(found.stdout)["runs"]}
        states.append((rows[CLOSED]["state"], rows[CLOSED]["step"]))
        for path in (study / CLOSED).iterdir():
            path.chmod(0o644)
    assert states == [("unreadable", None), ("done", 6)]


@pytest.mark.slow
def test_a_run_whose_checkpoint_cannot_be_read_stops_and_keeps_everything(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, max_steps=12, checkpoint_every=4, evals=2))
    assert run_here(folder, "--quiet").returncode == 0
    (folder / "status.json").write_text('{"state": "failed", "attempt": 1}')
    newest = folder / "checkpoints" / "step-00000012"
    shutil.rmtree(folder / "checkpoints" / "step-00000008")
    newest.chmod(0)
    kept = {path: path.read_bytes() for path in (folder / "metrics.csv", folder / "evals.jsonl")}
    script = "import sys, core; sys.exit(core.main([*sys.argv[1:], '--quiet']))"
    found = run_as_anybody(script, str(folder), cwd=tmp_path)
    newest.chmod(0o755)
    assert found.returncode == 2, found.stderr
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed"
    assert os.strerror(errno.EACCES) in status["reason"]
    assert {path: path.read_bytes() for path in kept} == kept
    assert sorted(path.name for path in newest.iterdir()) == [
        "model.safetensors", "state.json", "training.safetensors",
    ]  # fmt: skip
    assert run_here(folder, "--quiet").returncode == 0
    assert json.loads((folder / "run.json").read_text())["attempts"][-1]["resumed_from_step"] == 12
