"""What reading a whole set found out is kept: next to it, else in the user's cache; one process reads it."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from data_loading import verification_cache as checked
from data_loading.verification_cache import one_reads, read_checked, write_checked


@dataclass(frozen=True)
class Place:
    checked: Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    return Place(tmp_path / "set" / "checked.json")


def refuse(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder cannot be written."""
    write = checked.atomic_files.write_json

    def written(path: Path, facts: Any) -> None:
        if path == place.checked:
            raise OSError(30, "Read-only file system", str(path))
        write(path, facts)

    monkeypatch.setattr(checked.atomic_files, "write_json", written)


def test_facts_are_kept_next_to_the_set(place: Place) -> None:
    write_checked(place, {"a": 1})
    assert place.checked.exists()
    assert read_checked(place) == {"a": 1}


def test_facts_of_a_read_only_set_are_kept_in_the_cache(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(place, monkeypatch)
    write_checked(place, {"a": 1})
    monkeypatch.setattr(checked, "_in_process", {})  # as in another process
    assert read_checked(place) == {"a": 1}
    assert not place.checked.exists()
    assert read_checked(Place(place.checked.with_name("other.json"))) == {}


def test_facts_that_came_with_a_copy_do_not_hide_later_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checked(place, {"a": "before it was copied"})
    os.utime(place.checked, (1, 1))
    refuse(place, monkeypatch)
    write_checked(place, {"a": "here"})
    monkeypatch.setattr(checked, "_in_process", {})
    assert read_checked(place) == {"a": "here"}


def _rank(folder: Path, read: Path) -> None:
    place = Place(folder / "checked.json")
    with one_reads(place, "the set"):
        if not read_checked(place):
            with open(read, "a") as file:
                file.write("read\n")
            time.sleep(0.3)
            write_checked(place, {"a": 1})


def test_one_rank_of_a_node_reads(place: Place, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(place.checked.parent, tmp_path / "reads")) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert (tmp_path / "reads").read_text() == "read\n"


def test_without_a_cache_nothing_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "cache_folder", lambda: None)
    with one_reads(place, "the set"):
        write_checked(place, {"a": 1})
    assert read_checked(place) == {"a": 1}
    assert os.listdir(place.checked.parent) == ["checked.json"]
