"""`python -m analysis live`: who is answered, what, and how it ends."""

from __future__ import annotations

import functools
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from made_pages import HOSTILE
from made_sweeps import BATCH_TOKENS, killed_for_memory, make_one, make_sweep, say

from analysis.__main__ import main
from analysis.live.follower import Follower
from analysis.live.server import Server
from analysis.reading import read_study
from experiment_utils.errors import UserError
from tests.golden_text import Golden


@pytest.fixture(scope="module")
def kept_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that change nothing of it."""
    folder = tmp_path_factory.mktemp("kept") / "sweep"
    make_sweep(folder, widths=(32,))
    return folder


@pytest.fixture
def study(kept_study: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept_study, tmp_path / "sweep"))


@contextmanager
def serving(study: Path) -> Iterator[Server]:
    follower = Follower(lambda: read_study([str(study)]), every_s=0.0)
    with Server(follower) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def kept_server(kept_study: Path) -> Iterator[Server]:
    """One for all tests that change nothing of its study."""
    with serving(kept_study) as found:
        yield found


@pytest.fixture
def server(study: Path) -> Iterator[Server]:
    with serving(study) as found:
        yield found


def ask(
    server: Server, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body); the path is sent as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def state(server: Server, since: int = 0) -> dict[str, Any]:
    status, _, body = ask(server, f"/{server.token}/state?since={since}")
    assert status == 200
    found: dict[str, Any] = json.loads(body, parse_constant=lambda text: pytest.fail(text))
    return found


def section(answer: dict[str, Any], title: str) -> str | None:
    """HTML of a section; None if it did not change."""
    return next(html for name, html in answer["sections"] if name == title)


def test_the_page_is_the_report_and_its_state(kept_server: Server, kept_study: Path) -> None:
    status, headers, body = ask(kept_server, f"/{kept_server.token}/")
    assert (status, headers["Cache-Control"], headers["Referrer-Policy"]) == (200, "no-store", "no-referrer")
    assert b"connect-src 'self'" in body
    answer = state(kept_server)
    page = body.decode()
    assert f'{{"version":{answer["version"]},' in page
    assert [title for title, _ in answer["sections"]][:3] == ["", "Summary", "Runs"]
    for title, html in answer["sections"][1:]:
        assert html in page, title
    for run in read_study([str(kept_study)]).runs:
        assert run.name in (section(answer, "Runs") or "")


@pytest.mark.parametrize(
    "path",
    ["/", "/state", "/wrong/", "/wrong/state", "/{token}x/", "/{short}/", "//", "/%00/", "/../{token}/",
     "/?token={token}", "/\xff/"],
)  # fmt: skip
def test_without_the_token_nothing_is_told(kept_server: Server, path: str) -> None:
    asked = path.format(token=kept_server.token, short=kept_server.token[:-1])
    status, _, body = ask(kept_server, asked.encode("latin-1").decode("ascii", "ignore") or "/")
    assert status == 403
    assert b"sweep" not in body


@pytest.mark.parametrize(
    "path",
    ["/{token}/../../../../etc/passwd", "/{token}/%2e%2e/%2e%2e/etc/passwd", "/{token}//etc/passwd",
     "/{token}/config.yaml", "/{token}/state/", "/{token}"],
)  # fmt: skip
def test_no_path_names_a_file(kept_server: Server, path: str) -> None:
    assert ask(kept_server, path.format(token=kept_server.token))[0] == 404


def test_another_name_of_this_machine_is_not_answered(kept_server: Server) -> None:
    """A page of another site whose name was pointed at 127.0.0.1 sends its own name."""
    path = f"/{kept_server.token}/state"
    assert ask(kept_server, path, host=f"evil.example:{kept_server.port}")[0] == 403
    assert ask(kept_server, path, host=f"localhost:{kept_server.port}")[0] == 200


def test_only_reading_is_answered(kept_server: Server) -> None:
    assert ask(kept_server, f"/{kept_server.token}/", method="POST")[0] == 501
    status, headers, body = ask(kept_server, f"/{kept_server.token}/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


def test_it_listens_on_this_machine_alone(kept_server: Server) -> None:
    assert kept_server.server_address[0] == "127.0.0.1"
    assert kept_server.token not in "".join(sys.argv)
    assert len(kept_server.token) >= 32
    assert Server(kept_server.follower).token != kept_server.token


def test_only_sections_that_changed_are_sent_again(server: Server, study: Path) -> None:
    first = state(server)
    assert all(html is None for _, html in state(server, first["version"])["sections"])
    folder = sorted(study.iterdir())[2]
    with open(folder / "metrics.csv", "a") as file:
        file.write(f"41,{41 * BATCH_TOKENS},3.25,,0.1,1.0,1e12,0.5,33000.0,\n")
    answer = state(server, first["version"])
    assert "3.2500" in (section(answer, "Runs") or "")
    assert section(answer, "Curves") is not None
    assert section(answer, "Configurations") is None


def test_of_other_programs_curves_are_drawn_where_it_is_said_which(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss\n1,5\n2,4\n")
    read = functools.partial(read_study, [str(tmp_path)])
    pages = [Follower(read, x=x, y="loss").html() for x in (None, "step")]
    assert ['class="curves"' in page for page in pages] == [False, True]


def test_runs_come_and_go(server: Server, study: Path) -> None:
    state(server)
    make_one(study, 32, 0.0001, 0)
    gone = sorted(study.iterdir())[-1]
    shutil.rmtree(gone)
    runs = section(state(server), "Runs") or ""
    assert "32d-lr0.0001-" in runs
    assert gone.name not in runs


def test_a_run_that_dies_is_shown_with_its_reason(server: Server, study: Path) -> None:
    first = state(server)
    killed_for_memory(sorted(study.iterdir())[0])
    answer = state(server, first["version"])
    assert ">oom<" in (section(answer, "Runs") or "")
    assert "oom, 1 run" in (section(answer, "Failures") or "")


def test_a_running_run_shows_how_far_it_is(server: Server, study: Path) -> None:
    folder = sorted(study.iterdir())[0]
    status = {"version": 1, "state": "running", "stage": "train", "step": 40, "host": "n1"}
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"steps": 80}))
    (folder / "outcome.json").unlink()
    (folder / "status.json").write_text(json.dumps(status | {"heartbeat_s": time.time()}))
    runs = section(state(server), "Runs") or ""
    assert 'style="width:50%"' in runs
    assert "40 of 80" in runs


def test_a_study_that_is_gone_is_reported_and_the_page_stays(
    server: Server, study: Path, golden: Golden
) -> None:
    first = state(server)
    study.rename(study.with_name("elsewhere"))
    answer = state(server)
    golden.text(answer["trouble"])
    assert len(answer["sections"]) == len(first["sections"])


def test_words_of_a_hostile_run_are_words(server: Server, study: Path) -> None:
    say(sorted(study.iterdir())[0], dataset={"name": HOSTILE})
    body = ask(server, f"/{server.token}/")[2].decode()
    assert "<img" not in body
    assert body.count("<script>") == 1


def test_answers_are_packed_for_who_can_unpack_them(kept_server: Server) -> None:
    headers = ask(kept_server, f"/{kept_server.token}/", **{"accept-encoding": "gzip"})[1]
    assert headers["Content-Encoding"] == "gzip"


def test_a_port_that_is_taken_is_the_users_to_change(kept_server: Server) -> None:
    for port in (kept_server.port, 99999):
        with pytest.raises(UserError, match=f"--port {port}") as error:
            Server(kept_server.follower, port)
        assert error.value.codes == ["port-not-free"]


@pytest.mark.parametrize("given", [["no-such"], ["{study}", "--every", "0"], ["{study}", "--port", "-1"]])
def test_mistakes_exit_2(study: Path, given: list[str], capsys: Any, golden: Golden) -> None:
    assert main(["live", *(one.format(study=study) for one in given)]) == 2
    golden.text(capsys.readouterr().err)


@pytest.mark.slow
def test_ctrl_c_ends_it_with_130(study: Path, root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "analysis", "live", str(study), "--json"],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    port = urllib.parse.urlsplit(told["address"]).port
    assert told["tunnel"].startswith(f"ssh -N -L {port}:127.0.0.1:{port} ")
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error.strip() == "interrupted"
