"""Files that this process cannot read, also where root runs the tests."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

ERRORS = (errno.EACCES, errno.EIO, errno.ESTALE)
_AS_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@contextmanager
def failing_reads(path: Path, number: int) -> Iterator[None]:
    """Opening the file, or anything in the folder, fails with this errno; so does listing the folder."""
    real_open, real_list = open, os.listdir

    def is_meant(given: Any) -> bool:
        return not isinstance(given, int) and Path(given).absolute().is_relative_to(path.absolute())

    def opened(given: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if is_meant(given) and "r" in mode:
            raise OSError(number, os.strerror(number), str(given))
        return real_open(given, mode, *arguments, **options)

    def listed(given: Any = ".") -> list[str]:
        if is_meant(given):
            raise OSError(number, os.strerror(number), str(given))
        return real_list(given)

    with mock.patch("builtins.open", opened), mock.patch("io.open", opened), mock.patch("os.listdir", listed):
        yield


def run_as_anybody(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python script without root's right to read what its mode forbids."""
    command = [sys.executable, "-c", script, *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root reads everything here: no setpriv")
        command = [*_AS_ANYBODY, *command]
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
