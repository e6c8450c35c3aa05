"""The file has every line; the terminal has the lines that say something new."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path

import pytest

from training.report.log import ALONE, IN_FILE, SELDOM, log_to
from training.report.progress_line import MOVES, MOVING, is_moving

STEP, ERROR, EVALUATION, LAST = "step 1", "error: room", "val loss 3", "step 4 | 1 s to go"
STAGES = "[mem] train {}  job 1.0 GB", "[mem] evaluate {}  job 1.0 GB"


def test_file_and_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    with log_to(path, terminal=True):
        logging.getLogger("training").info(STEP)
        logging.getLogger("training").error(ERROR)
        for step in (1, 2):
            for line in STAGES:
                logging.getLogger("memory").info(line.format(step))
        warnings.warn("gap", stacklevel=1)
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError as error:
            logging.getLogger("core").error("failed", exc_info=error)
    out, err = capsys.readouterr()
    assert out.splitlines()[:3] == [STEP, *(line.format(1) for line in STAGES)]
    assert "gap" in out
    assert err.splitlines() == [ERROR, "failed"]
    text = path.read_text()
    for line in (STEP, ERROR, *(line.format(2) for line in STAGES), "gap", "ZeroDivisionError"):
        assert line in text


def test_stage_line_is_shown_when_a_leak_of_a_kind_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grows = ["no leak", "LEAK", "LEAK", "LEAK  shm +0.4 MB/step, LEAK  limit in 8 min | anon 1 MB", "LEAK"]
    lines = [f"[mem] train {step}  job 1.0 GB  +1.1 MB/step, {grow}" for step, grow in enumerate(grows)]
    with log_to(tmp_path / "log.txt", terminal=True):
        for line in lines:
            logging.getLogger("memory").info(line)
    shown = capsys.readouterr().out.splitlines()
    assert shown == [lines[0], lines[1], lines[3].partition("  limit")[0]]


class Screen(io.StringIO):
    """A stream that is a terminal, as far as it says."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "columns", "parts"), [(Screen(), 50, 2), (Screen(), 200, 4), (io.StringIO(), 50, 4)]
)
def test_stdout_gets_80_columns_or_fewer_of_a_stage_line_and_the_file_all(
    stream: io.StringIO, columns: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", str(columns))
    line = (
        "[mem] train 1  job 9.4/32.0 GB (29%)  +1.1 MB/step, LEAK  limit in 3.2 h  in worker 12 | rss 1.0 GB"
    )
    with log_to(tmp_path / "log.txt", terminal=True):
        logging.getLogger("memory").info(line)
        logging.getLogger("training").info("a" * 90)
    assert stream.getvalue().splitlines() == [
        "  ".join(line.partition(" | ")[0].split("  ")[:parts]),
        "a" * 90,
    ]
    assert line in (tmp_path / "log.txt").read_text()


def lines_of_a_run() -> None:
    log, line = (
        logging.getLogger("training"),
        "step 1 | loss 2 | lr 1 | grad 3 | 5 tok/s | memory 7 MB | 3 s to go",
    )
    log.info(line, extra=MOVES)
    MOVING.info(line.replace("step 1", "step 2"), extra=MOVES)
    log.info(EVALUATION)
    MOVING.info(line.replace("step 1", "step 3"), extra=MOVES)


def test_on_a_terminal_progress_is_one_line_that_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", Screen())
    monkeypatch.setenv("COLUMNS", "54")
    monkeypatch.setenv("TERM", "xterm")
    with log_to(tmp_path / "log.txt", terminal=True):
        lines_of_a_run()
        logging.getLogger("training").error("error: no room")
        assert screen.getvalue().endswith("\r\x1b[K"), "an error has the row for itself"
        MOVING.info(LAST, extra=MOVES)
    assert not is_moving()
    *shown, last = screen.getvalue().split("\r\x1b[K")
    short = "loss 2 | 5 tok/s | memory 7 MB | 3 s to go"
    steps = [f"step {step} | {short}" for step in (1, 2, 3)]
    assert shown == ["", *steps[:2], f"{EVALUATION}\n", steps[2], ""]
    assert last == f"{LAST}\n", "the last one stays"
    text = (tmp_path / "log.txt").read_text()
    assert "\x1b" not in text
    assert "step 1 | loss 2 | lr 1 | grad 3 |" in text
    assert "step 2" not in text


@pytest.mark.parametrize("where", ["a pipe", "a dumb terminal"])
def test_elsewhere_nothing_moves(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO() if where == "a pipe" else Screen()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "xterm" if where == "a pipe" else "dumb")
    with log_to(tmp_path / "log.txt", terminal=True):
        lines_of_a_run()
    assert [line.partition(" |")[0] for line in stream.getvalue().splitlines()] == [STEP, EVALUATION]
    assert "\r" not in stream.getvalue()


def test_attempts_are_appended_and_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for attempt in ("first", "second"):
        with log_to(tmp_path / "log.txt", terminal=False):
            logging.getLogger("training").info(attempt)
    assert [line.split()[-1] for line in (tmp_path / "log.txt").read_text().splitlines()] == [
        "first",
        "second",
    ]
    assert capsys.readouterr() == ("", "")
    logging.getLogger("training").info("outside")
    assert "outside" not in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("is_brief", [False, True])
def test_a_run_of_a_sweep_shows_less_and_its_file_has_all(
    is_brief: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, mem = logging.getLogger("training"), logging.getLogger("memory")
    with log_to(tmp_path / "log.txt", terminal=True, is_brief=is_brief):
        log.info("the run begins")
        log.info("details", extra=IN_FILE)
        log.info("data", extra=ALONE)
        log.info("first loss", extra=SELDOM)
        log.info("second loss", extra=SELDOM)
        log.info("step 1", extra=MOVES)
        mem.info("[mem] start  job 1.0/8.0 GB (12%)")
        mem.info("[mem] train 1  job 2.0/8.0 GB (25%)")
        mem.info("[mem] train 2  job 4.0/8.0 GB (50%)")
        mem.info("[mem] train 3  job 4.0/8.0 GB (50%)  +1.1 MB/step, LEAK")
        log.warning("a warning")
    shown = capsys.readouterr().out.splitlines()
    first = ["the run begins", "data", "first loss", "step 1"]
    alone = [*first, "[mem] start  job 1.0/8.0 GB (12%)", "[mem] train 1  job 2.0/8.0 GB (25%)"]
    much = ["[mem] train 2  job 4.0/8.0 GB (50%)"]
    last = ["[mem] train 3  job 4.0/8.0 GB (50%)  +1.1 MB/step, LEAK", "a warning"]
    assert shown == ([first[0], *much, *last] if is_brief else [*alone, *last])
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 11
