"""Disk space for a file that is written later."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memory.files.reserved_file import Reserved

SIZE = 32 << 10


def test_becomes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    path.write_text("older")
    (tmp_path / ".outcome.json.reserved").write_text("of a supervisor that was killed")
    reserved = Reserved(str(path), SIZE)
    assert (tmp_path / ".outcome.json.reserved").stat().st_blocks * 512 >= SIZE
    for code in (3, 4):  # the second one without a reservation
        reserved.write_json({"exit_code": code})
        assert json.loads(path.read_text()) == {"exit_code": code}
        assert os.listdir(tmp_path) == ["outcome.json"]


def test_content_larger_than_reserved(tmp_path: Path) -> None:
    Reserved(str(tmp_path / "a"), 8).write_json({"exit_code": 3})
    assert os.listdir(tmp_path) == ["a"]


def test_dropped_reservation_leaves_nothing(tmp_path: Path) -> None:
    reserved = Reserved(str(tmp_path / "a"), SIZE)
    reserved.drop()
    reserved.drop()
    assert os.listdir(tmp_path) == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Reserved(str(tmp_path / "none" / "a"), SIZE).write_json({})
