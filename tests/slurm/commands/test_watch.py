"""`python -m slurm watch`: its screen, its keys, and the terminal that it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import FakeSlurm, MadeStudy
from slurm_command import Shown, refused

from memory.accounting.sacct import Answer
from slurm.commands import watch
from slurm.commands.watch_screen import QUIT, WatchScreen
from slurm.status import study_states
from slurm.status.study_status import RunState

NAMES = [f"32d-lr0.003-seed{n}-{n:08x}" for n in range(40)]
_CODES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    made = MadeStudy(place / "runs" / "sweep", NAMES)
    made.status(NAMES[0], "done", step=1000)
    for number in range(2, len(NAMES)):
        said.wait(f"4242_{number}", reason="QOSMaxGRESPerUser")
    made.status(NAMES[1], "running", age_s=70)
    made.killed_for_memory(NAMES[1])
    said.row("4242_1", "FAILED", "1:0")
    return made


def entries_of(count: int = 3) -> list[RunState]:
    return [
        RunState(Path("runs/sweep") / name, "failed", f"ValueError: {'no ' * 40}", "", "status.json")
        for name in NAMES[:count]
    ]


def screen_of(entries: Sequence[RunState]) -> WatchScreen:
    screen = WatchScreen("sweep", "sweep")
    screen.news(entries)
    return screen


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        (["w"], ["why", f"runs/sweep/{NAMES[0]}"]),
        (["j", "down", "k", "j", "l"], ["logs", f"runs/sweep/{NAMES[2]}"]),
        (["page down", "c"], None),
        (["page down", "c", "n", "y"], None),
        (["page down", "c", "y"], ["cancel", "sweep", NAMES[2], "--yes"]),
        (["r", "\n"], None),
        (["r", "y"], ["resubmit", "sweep", NAMES[0]]),
        (["w", "w"], None),
        (["?", "j", "q"], None),
        (["q"], QUIT),
        (["?", "q", "q"], QUIT),
    ],
)
def test_keys(keys: list[str], command: list[str] | None) -> None:
    """Of runs that would change something the second key is `y`; a second command waits for the first."""
    screen = screen_of(entries_of())
    pressed = [screen.press("j" if key == "down" else key) for key in keys]
    assert pressed[-1] == command


@given(
    keys=st.lists(st.sampled_from(["j", "k", "page up", "page down", "w", "c", "r", "y", "?", "\x1b", "x"])),
    columns=st.integers(30, 200),
    height=st.integers(8, 60),
    count=st.sampled_from([0, 1, 40]),
)
def test_screen_fits_every_terminal(keys: list[str], columns: int, height: int, count: int) -> None:
    screen = screen_of(entries_of(count))
    for key in keys:
        command = screen.press(key)
        if command is not None and command is not QUIT:
            screen.show("\x1b[31ma line of a log\twith colours\x1b[0m " * 9 + "\n" * height, at_end=True)
        lines = screen.draw(columns, height)
        assert len(lines) == height
        assert max(len(text) for text, _ in lines) <= columns
        is_table = screen.text is None and count
        assert sum(style == "reverse" for _, style in lines) == bool(is_table)


def test_selection_stays_with_its_run() -> None:
    """Runs that appear above it do not move it to another."""
    screen = screen_of(entries_of()[1:])
    screen.press("j")
    screen.news(entries_of())
    assert screen.press("w") == ["why", f"runs/sweep/{NAMES[2]}"]


@pytest.mark.parametrize("knows_restarts", [True, False])
def test_squeue_each_look_and_sacct_every_30_s(
    said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, study: MadeStudy, knows_restarts: bool
) -> None:
    """A sacct before 23.02 refuses a field, and is asked again without it."""
    clock, answered = [1000.0], said.ask

    def ask(command: list[str], timeout_s: float) -> Answer:
        answer = answered(command, timeout_s)
        refuses = command[0] == "sacct" and not knows_restarts and "Restarts" in " ".join(command)
        return Answer(1, error='sacct: error: Invalid field requested: "Restarts"\n') if refuses else answer

    monkeypatch.setattr("slurm.status.slurm_answers.ask_in_unix_time", ask)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    _, look = watch._source("sweep", watch.AskSometimes())
    said.calls.clear()
    for _ in range(7):
        entries = look()
        assert [entry.state for entry in entries][:3] == ["done", "oom", "queued"]
        assert not entries[1].notes
        clock[0] += 5
    assert said.calls.count("squeue") == 7
    assert said.calls.count("sacct") == (2 if knows_restarts else 4)


def test_cluster_that_does_not_answer_is_one_line(study: MadeStudy, said: FakeSlurm) -> None:
    said.queue = said.accounting = None
    screen = screen_of(study_states(study.folder))
    lines = [text for text, _ in screen.draw(80, 24)]
    assert [line.startswith("squeue ") for line in lines].count(True) == 1
    assert any(NAMES[0] in line for line in lines)


def test_without_a_terminal_the_table_once(study: MadeStudy, shown: Shown) -> None:
    assert NAMES[39] in shown("watch", "sweep")


def test_bad_input(place: Path, study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nosuch" in refused(capsys, "watch", "nosuch")
    assert "expected 1 to" in refused(capsys, "watch", "sweep", "--interval", "0")


class Terminal:
    """A terminal of 80 x 24 in which `watch` runs: a fork of this process, so that Slurm is the fake."""

    def __init__(self, *arguments: str) -> None:
        self.output = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
            os.environ |= {"TERM": "xterm-256color"}
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                os.environ.pop(name, None)
            code = 99
            try:
                from slurm.__main__ import main

                code = main(["watch", *arguments])
                sys.stdout.flush()
            except SystemExit as ended:
                code = int(str(ended.code))
            finally:
                os._exit(code)

    def frame(self) -> list[str]:
        """Lines of the newest whole screen."""
        return _CODES.sub(b"", self.output.rpartition(b"\x1b[H")[2]).decode().replace("\r", "").split("\n")

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        end = time.perf_counter() + 60
        while not seen(self.frame()):
            assert time.perf_counter() < end, self.output.decode()
            self._read()
        return self.frame()

    @property
    def is_line_by_line(self) -> bool:
        """Whether what is typed is shown, and passed on with the end of the line."""
        both = termios.ECHO | termios.ICANON
        return int(termios.tcgetattr(self.terminal)[3]) & both == both

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def end(self) -> int:
        """Its exit status."""
        while self._read():
            pass
        assert self.is_line_by_line, "as it was before"
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self.terminal], [], [], 1)[0]:
            return True
        try:
            news = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.output += news
        return bool(news)


def test_in_a_terminal_of_80_columns(study: MadeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_output", lambda words, columns: f"typed: {words}")
    shown = Terminal("sweep")
    frame = shown.until(lambda lines: any(NAMES[0] in line for line in lines))
    assert len(frame) == 24
    assert max(map(len, frame)) <= 80
    shown.press("\x1b[Bc")
    shown.until(lambda lines: lines[-1].startswith(f"cancel {NAMES[1]}? [y/N]"))
    shown.press("y")
    shown.until(lambda lines: any(f"'{NAMES[1]}', '--yes'" in line for line in lines))
    assert not shown.is_line_by_line
    shown.press("q")
    shown.until(lambda lines: any(NAMES[0] in line for line in lines))
    shown.press("q")
    assert shown.end() == 0
    assert b"Traceback" not in shown.output
    assert b"\x1b[?1049l" in shown.output, "the screen from before is shown again"


def test_a_look_that_began_before_a_command_ended_is_followed_by_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not have what the command changed, and the next one comes after a day."""
    looks: list[int] = []

    def look() -> list[RunState]:
        looks.append(1)
        time.sleep(1.0 * (len(looks) == 1))
        return [RunState(Path(f"runs/sweep/look{len(looks)}"), "failed", "why", "", "")]

    screen = screen_of(entries_of())
    monkeypatch.setattr(watch, "_source", lambda given, ask: (screen, look))
    monkeypatch.setattr(watch, "_output", lambda words, columns: "typed")
    shown = Terminal("sweep", "--interval", "86400")
    shown.until(lambda lines: any(NAMES[0] in line for line in lines))
    shown.press("w")
    shown.until(lambda lines: any("typed" in line for line in lines))
    shown.press("q")
    shown.until(lambda lines: any("look2" in line for line in lines))
    shown.press("q")
    assert shown.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_restore_the_terminal(study: MadeStudy, number: signal.Signals, status: int) -> None:
    shown = Terminal("sweep")
    shown.until(lambda lines: any(NAMES[0] in line for line in lines))
    os.kill(shown.pid, number)
    assert shown.end() == status
    assert b"\x1b[?1049l" in shown.output
