"""Room for a file that is written later: it is there on a full disk, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from memory.files.reserved_file import Reserved

SIZE = 32 << 10
has_nameless = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")


@pytest.fixture(params=["nameless", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """named: as where the file system has no files without a name."""
    if request.param == "named":
        opens, nameless = os.open, getattr(os, "O_TMPFILE", 0)

        def refuses(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if nameless and flags & nameless == nameless:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return opens(path, flags, *more, **named)

        monkeypatch.setattr(os, "open", refuses)
    return str(request.param)


def test_it_becomes_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outcome.json"
    path.write_text("older")
    (tmp_path / ".outcome.json.reserved").write_text("of a supervisor that was killed")
    room = Reserved(str(path), SIZE)
    room.write_json({"exit_code": 3})
    assert json.loads(path.read_text()) == {"exit_code": 3}
    assert os.listdir(tmp_path) == ["outcome.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    room.write_json({"exit_code": 4})
    assert json.loads(path.read_text()) == {"exit_code": 4}
    assert os.listdir(tmp_path) == ["outcome.json"]


def test_more_than_was_reserved(tmp_path: Path, kind: str) -> None:
    Reserved(str(tmp_path / "a"), 8).write_json({"exit_code": 3})
    assert os.listdir(tmp_path) == ["a"]


def test_what_is_not_needed_is_given_back(tmp_path: Path, kind: str) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    room = Reserved(str(tmp_path / "a"), SIZE)
    room.drop()
    room.drop()
    assert os.listdir(tmp_path) == []
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_no_folder(tmp_path: Path, kind: str) -> None:
    room = Reserved(str(tmp_path / "none" / "a"), SIZE)
    with pytest.raises(FileNotFoundError):
        room.write_json({})


@has_nameless
def test_who_is_killed_leaves_nothing(tmp_path: Path) -> None:
    room = Reserved(str(tmp_path / "a"), SIZE)
    if room._has_name:
        pytest.skip("this file system has no files without a name")
    assert os.fstat(room._file or 0).st_size == SIZE
    assert os.listdir(tmp_path) == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
