"""At its end the interpreter waits for threads that hold files of a stream, and for nothing else."""

from __future__ import annotations

import ctypes
import io
import subprocess
import sys
from pathlib import Path

from data_loading.hub_stream.arrow_shutdown import held_by_no_python

ROOT = Path(__file__).resolve().parents[3]

HOLD = """
import ctypes, io, sys, threading, time
from data_loading.hub_stream.arrow_shutdown import close_at_exit

class Stream:
    def __init__(self):
        self.file = io.BytesIO(b"rows")
    def close(self):
        self.file.close()
        held, self.file = id(self.file), None
        threading.Thread(target=let_go, args=(held,), daemon=True).start()

def let_go(held):
    time.sleep(0.5)
    print("let go", flush=True)
    ctypes.pythonapi.Py_DecRef(ctypes.cast(held, ctypes.py_object))

stream = Stream()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream.file))  # as a thread of C++ does
close_at_exit(stream)
"""


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_thread_that_holds_a_file_is_waited_for(tmp_path: Path) -> None:
    done = ran(HOLD, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "let go\n"


def test_what_python_itself_holds_is_not_waited_for() -> None:
    kept, closed_and_held, left_open = io.BytesIO(), io.BytesIO(), io.BytesIO()
    kept.close(), closed_and_held.close()
    numbers = {id(kept): "kept", id(closed_and_held): "held", id(left_open): "open"}
    for file in (closed_and_held, left_open):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(file))
    held, others = id(closed_and_held), [kept, left_open]
    del kept, closed_and_held, left_open, file
    found = [numbers[id(file)] for ref in held_by_no_python() if id(file := ref()) in numbers]
    assert found == ["held"]
    for number in (held, id(others[1])):
        ctypes.pythonapi.Py_DecRef(ctypes.cast(number, ctypes.py_object))
