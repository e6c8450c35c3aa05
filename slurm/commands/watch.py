"""`python -m slurm watch [STUDY]`: the runs of a study, live; keys explain, cancel and resubmit them."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError
from experiment_utils.modules import COMMAND
from slurm.arguments import all_studies, find_token_jobs, root_of, set_of, study_and_runs
from slurm.commands.watch_screen import QUIT, WatchScreen
from slurm.status import slurm_answers
from slurm.status.study_status import RunState, run_states

if TYPE_CHECKING:
    from memory.accounting.sacct import Answer, Ask

EXAMPLES = """\
examples:
  python -m slurm watch                  the study that was submitted to last
  python -m slurm watch lr_sweep
  python -m slurm watch Datasets/huge    the tasks of a token set

keys: up, down or j, k select a run; w why, l logs, c cancel and r resubmit it; ? help; q quit."""
EVERY_S = 5.0
SACCT_EVERY_S = 30.0
_POLL_S = 0.2
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "k", "\x1bOA": "k", "\x1b[B": "j", "\x1bOB": "j", "\x1b[5~": "page up", "\x1b[6~": "page down",
    " ": "page down", "Q": "q",
}  # fmt: skip
Look = Callable[[], Sequence[RunState]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "watch",
        help="the runs of a study, live: why, logs, cancel, resubmit by a key",
        description="The runs of a study in a terminal, live; keys explain, cancel and resubmit them.",
        epilog=EXAMPLES,
    )
    parser.add_argument("study", nargs="?", metavar="STUDY", help="path, name below runs_dir, or token set")
    parser.add_argument(
        "--interval", type=float, default=EVERY_S, metavar="S", help=f"seconds between looks ({EVERY_S:g})"
    )
    parser.set_defaults(run=lambda options: watch(options.study, options.interval))


def watch(given: str | None, interval_s: float = EVERY_S) -> int:
    """Show the runs until the user quits; without a terminal, print their table once.

    Raises:
        UserError: the study does not exist.
    """
    if not 1 <= interval_s <= 86400:
        raise UserError(f"--interval {interval_s:g}: expected 1 to 86400 seconds", code="bad-interval")
    if given is None:
        studies = all_studies()
        if not studies:
            raise UserError(f"{root_of()} has no studies: expected STUDY", code="no-study")
        given = str(studies[0])
    screen, look = _source(given, AskSometimes())
    if not sys.stdin.isatty() or not can_rewrite(sys.stdout):
        from slurm.commands import status

        print("watch needs a terminal: this is the table once", file=sys.stderr)
        return status.run(argparse.Namespace(study=given, state=None, watch=False, json=False))
    return _watch(screen, look, interval_s)


def _source(given: str, ask: Ask) -> tuple[WatchScreen, Look]:
    """The screen of a study or a token set, and a function that returns the states of its runs."""
    jobs = find_token_jobs(given)
    if jobs is None:
        name = study_and_runs(given)[0].resolve().name
        return WatchScreen(name, given), lambda: run_states(study_and_runs(given)[1], ask=ask)
    from slurm.tokens.task_status import token_run_states  # it loads the pretokenizer

    return WatchScreen(str(set_of(jobs)), given, is_set=True), lambda: token_run_states(jobs, ask=ask)


class AskSometimes:
    """Runs squeue each time it is asked, other clients at most every 30 s: else their last answer."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, Answer]] = {}

    def __call__(self, command: list[str], timeout_s: float) -> Answer:
        ask = slurm_answers.ask_in_unix_time
        if command[0] == "squeue":
            return ask(command, timeout_s)
        name = " ".join(["sacct", *command[3:]] if command[:2] == ["sacct", "--jobs"] else command)
        kept = self._answers.get(name)
        if kept is None or time.monotonic() - kept[0] >= SACCT_EVERY_S:
            kept = self._answers[name] = (time.monotonic(), ask(command, timeout_s))
        return kept[1]


def _watch(screen: WatchScreen, look: Look, interval_s: float) -> int:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    news: SimpleQueue[tuple[list[str] | None, Any]] = SimpleQueue()
    console, drawn = Console(), None
    is_looking, has_changed, next_look_s = False, False, 0.0
    with _key_by_key(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if not is_looking and time.monotonic() >= next_look_s:
                is_looking, has_changed = True, False
                _in_background(news, None, look)
            lines = screen.draw(*console.size)
            if lines != drawn:
                drawn = lines
                text = Text("\n", no_wrap=True).join(Text(line, style) for line, style in lines)
                live.update(text, refresh=True)
            for key in _pressed():
                command = screen.press(key)
                if command is QUIT:
                    return 0
                if command is not None:
                    _in_background(news, command, partial(_output, command, console.width))
            while not news.empty():
                command, result = news.get()
                if isinstance(result, Exception) and not isinstance(result, UserError | OSError):
                    raise result
                if command is not None:
                    screen.show(str(result), at_end=command[0] == "logs")
                    has_changed, next_look_s = True, 0.0
                    continue
                is_looking = False  # what a command has changed meanwhile is not in it
                next_look_s = 0.0 if has_changed else time.monotonic() + interval_s
                if isinstance(result, Exception):
                    screen.note = str(result)
                else:
                    screen.news(result)


def _in_background(
    news: SimpleQueue[tuple[list[str] | None, Any]], command: list[str] | None, work: Callable[[], Any]
) -> None:
    """Put the command and the result of the work into the queue; keys work meanwhile."""

    def run() -> None:
        try:
            news.put((command, work()))
        except Exception as error:  # raised again by the thread that draws
            news.put((command, error))

    threading.Thread(target=run, daemon=True).start()


def _output(words: list[str], columns: int) -> str:
    """Output of `python -m slurm` with these words. Ctrl-C ends the view alone, not a submission."""
    done = subprocess.run(
        [sys.executable, *COMMAND, "slurm", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=os.environ | {"COLUMNS": str(columns)}, check=False,
    )  # fmt: skip
    return done.stdout.decode(errors="replace")


@contextmanager
def _key_by_key() -> Iterator[None]:
    """Have the terminal pass each key on when it is pressed; restore it at the end, also after SIGTERM."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    handler = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _pressed() -> list[str]:
    """Keys of the last moment, as characters or names; `q` when the terminal is gone."""
    terminal = sys.stdin.fileno()
    if not select.select([terminal], [], [], _POLL_S)[0]:
        return []
    text = os.read(terminal, 1024).decode(errors="ignore")
    return [_NAMES.get(key, key) for key in _KEY.findall(text)] if text else ["q", "q"]
