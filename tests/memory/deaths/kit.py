"""What the programs of the cases share: standard library only. The harness puts it on the path."""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MB = 1 << 20
FOLDER = Path(os.environ["CASE_FOLDER"])
"""The case's own, empty at the start; gone when the case is over."""
RUN = Path(os.environ["CASE_RUN"])
"""The run's folder: outcome.json, memory.ring; stage records belong here too."""
BESIDE = sys.argv[1:] == ["beside"]
"""Whether this is the process that runs beside the run, and not the run itself."""
PAGE = mmap.PAGESIZE


@contextmanager
def as_a_run() -> Iterator[None]:
    """Stages are recorded and the supervisor's questions answered, as in a training run."""
    from memory import black_box, record_to

    with black_box.installed(RUN, attempt=1), record_to(RUN / "memory.jsonl", attempt=1):
        yield


def grow(megabytes: int, seconds: float = 2.0, held: list[bytearray] | None = None) -> list[bytearray]:
    """Take that much anonymous memory, evenly over that time; never less than 1 MB at once."""
    held = [] if held is None else held
    begin = time.monotonic()
    for number in range(megabytes):
        held.append(bytearray(b"x") * MB)
        time.sleep(max(0.0, begin + seconds * (number + 1) / megabytes - time.monotonic()))
    return held


def over(seconds: float, times: int, act: Callable[[int], object]) -> None:
    """act(0), act(1), ... that many times, evenly over that time."""
    begin = time.monotonic()
    for number in range(times):
        act(number)
        time.sleep(max(0.0, begin + seconds * (number + 1) / times - time.monotonic()))


def token_file(megabytes: int, name: str = "tokens.bin") -> Path:
    """A file of zeros of that size, which takes no room on the disk; read, it fills the page cache as any."""
    path = FOLDER / name
    with open(path, "wb") as file:
        file.truncate(megabytes * MB)
    return path


def written_file(megabytes: int, name: str = "written.bin") -> Path:
    """A file of that size that was really written, and is in the page cache."""
    path = FOLDER / name
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * MB)
        file.flush()
        os.fsync(file.fileno())
    return path


def touch_all(mapped: mmap.mmap, step: int = PAGE, begin: int = 0, end: int | None = None) -> int:
    """Read one byte of each page."""
    return sum(mapped[at] for at in range(begin, len(mapped) if end is None else end, step))


def forked(body: Callable[[], object]) -> int:
    """The pid of a child that runs `body` and exits with 0."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return pid


def wait_for(pid: int) -> int:
    """Exit status of a child; below 0 the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def tell(name: str, text: str = "") -> None:
    """Leave a note for the process beside (or for the run): it waits with `told`."""
    temporary = FOLDER / f".{name}"
    temporary.write_text(text)
    temporary.rename(FOLDER / name)


def told(name: str, within_s: float = 60.0) -> str:
    """Wait until the other has told; returns the text.

    Raises:
        TimeoutError: nothing was told.
    """
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            return (FOLDER / name).read_text()
        except FileNotFoundError:
            time.sleep(0.02)
    raise TimeoutError(f"nobody told {name}")
