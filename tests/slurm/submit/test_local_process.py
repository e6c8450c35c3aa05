"""`hydra/launcher=local hydra.launcher.detach=true`: in the background, and known like any other job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from composed_once import compose_once

import slurm.queue.find_jobs
import slurm.submit.submit_runs
from experiments import main
from slurm.records.submissions import LOCAL, Submission, submissions
from slurm.status import study_states
from slurm.submit.in_flight import is_alive, process_of
from tests.golden_text import Golden
from tests.slurm.submit.conftest import ASKED, ROOT
from tests.slurm.submit.test_batch import fork_and_die
from tests.slurm.submit.test_resubmit_runs import command

pytestmark = pytest.mark.usefixtures("quick_start")

HERE = (*ASKED, "hydra/launcher=local", "hydra.launcher.detach=true", "memory.supervise=false")


@pytest.fixture
def home(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is started runs a copy of the code with a stand-in for the run."""
    code = tmp_path / "code"
    for part in ("slurm", "experiment_utils"):
        shutil.copytree(ROOT / part, code / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("conf", "memory", "training", "data_loading", "models"):
        (code / part).symlink_to(ROOT / part)
    shutil.copy(Path(__file__).with_name("local_stand_in.py"), code / "core.py")
    monkeypatch.setattr(slurm.submit.submit_runs, "_snapshot", lambda runs_dir, copies: code)
    monkeypatch.setattr(slurm.queue.find_jobs, "SETTLE_S", 0.0)
    compose_once(monkeypatch)
    yield place
    for one in all_submissions(place):
        if one.arrays[0].job_id is not None and is_alive(one, one.arrays[0]):
            os.kill(process_of(one.arrays[0].job_id)[1], signal.SIGTERM)
        ended(one)


def all_submissions(place: Path) -> list[Submission]:
    return [one for study in place.glob("runs/*") for one in submissions(study)]


def ended(submission: Submission) -> None:
    deadline = time.monotonic() + 60
    while is_alive(submission, submission.arrays[0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def order(place: Path) -> list[list[str]]:
    """(seed, "begins", session, folder) of each run that was started, in order."""
    path = place / "runs" / "default" / "order.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line[1] == "begins"]


def test_runs_continue_in_a_session_of_their_own_after_the_command(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", *HERE, "seed=0,1,2", "notes=fail", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert (answer["launcher"], len(answer["submitted"])) == (LOCAL, 3)
    (submission,) = all_submissions(home)
    ended(submission)
    assert [line[0] for line in order(home)] == ["0", "1", "2"]
    assert {line[2] for line in order(home)} == {str(process_of(answer["jobs"][0]["job"])[1])}
    assert {line[3] for line in order(home)} == {str(home)}
    assert "failed 16d-lr0.003-seed1-" in (submission.folder / "log.txt").read_text()
    assert command("resubmit", "default", "--code", "now") == 0  # the copy here is no whole one
    again = all_submissions(home)[-1]
    ended(again)
    assert [line[0] for line in order(home)] == ["0", "1", "2", "1"]
    assert again.arrays[0].tasks == [submission.arrays[0].tasks[1]]


def test_one_that_works_is_left_and_cancel_ends_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", *HERE, "seed=3,4", "notes=wait"]) == 0
    while not order(home):
        time.sleep(0.05)
    capsys.readouterr()
    assert main(["-m", *HERE, "seed=3,4", "notes=wait", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert (len(answer["left"]), answer["submitted"]) == (2, [])
    assert command("cancel", "default", "--yes") == 0
    (submission,) = all_submissions(home)
    ended(submission)
    assert [line[0] for line in order(home)] == ["3"]
    assert [one.state for one in study_states(submission.study)] == ["cancelled", "cancelled"]
    assert main(["-m", *HERE, "seed=3,4", "notes=wait", "--json"]) == 0
    assert len(all_submissions(home)) == 2


def test_waiting_for_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slurm.submit.watch_runs.POLL_S", 0.05)
    assert main(["-m", *HERE, "seed=0,1", "notes=fail", "wait=true", "--json"]) == 1
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert [one["state"] for one in outcomes] == ["done", "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 5, 8, 11])
def test_a_submitter_that_dies_leaves_one_process_or_none(home: Path, at: int) -> None:
    fork_and_die(lambda: main(["-m", *HERE, "seed=0,2"]), at)
    assert main(["-m", *HERE, "seed=0,2"]) == 0
    for one in all_submissions(home):
        if one.arrays[0].is_sent:
            ended(one)
    assert sorted(line[0] for line in order(home)) == ["0", "2"]


@pytest.fixture
def webhook() -> Iterator[list[dict[str, Any]]]:
    """Messages posted to it; the first one has its `url`."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    posted.append({"url": f"http://127.0.0.1:{server.server_port}/hook?a=b"})
    yield posted
    server.shutdown()


def test_a_webhook_gets_what_died_and_why(home: Path, webhook: list[dict[str, Any]], golden: Golden) -> None:
    url = webhook.pop()["url"]
    assert main(["-m", *HERE, "seed=0,1,2", "notes=fail", f"notify={url}"]) == 0
    (submission,) = all_submissions(home)
    ended(submission)
    (posted,) = webhook
    assert posted["counts"] == {"done": 2, "failed": 1}
    assert posted["died"][0]["reason"] == "diverged"
    golden.text(posted["text"])


def test_mail_is_slurms_alone(home: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["-m", *HERE, "seed=0,1", "notify=me@example.org"]) == 2
    golden.text(capsys.readouterr().err)
