"""The file has every line; the terminal has the lines that say something new."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path

import pytest

from training.log import log_to


def test_file_and_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    with log_to(path, terminal=True):
        logging.getLogger("training").info("step 1")
        logging.getLogger("training").error("error: no room")
        for step in (1, 2):
            logging.getLogger("memory").info(f"[mem] train step {step} | job")
            logging.getLogger("memory").info(f"[mem] evaluate step {step} | job")
        warnings.warn("mind the gap", stacklevel=1)
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError as error:
            logging.getLogger("core").error("failed", exc_info=error)
    out, err = capsys.readouterr()
    assert out.splitlines()[:3] == ["step 1", "[mem] train step 1 | job", "[mem] evaluate step 1 | job"]
    assert "mind the gap" in out
    assert err == "error: no room\nfailed\n"
    text = path.read_text()
    for line in (
        "step 1",
        "error: no room",
        "train step 2",
        "evaluate step 2",
        "mind the gap",
        "ZeroDivisionError",
    ):
        assert line in text


class Screen(io.StringIO):
    """A stream that is a terminal, as far as it says."""

    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_gets_short_stage_lines_and_the_file_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "50")
    line = "[mem] train step 1    | job 1 of 2 GB        | rss 1 of which 1 GB mapped files | +0 MB in 1 s"
    with log_to(tmp_path / "log.txt", terminal=True):
        logging.getLogger("memory").info(line)
        logging.getLogger("training").info("a" * 60)
    assert screen.getvalue().splitlines() == [
        "[mem] train step 1 | job 1 of 2 GB | +0 MB in 1 s",
        "a" * 60,
    ]
    assert line in (tmp_path / "log.txt").read_text()


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
