"""Files of the cache: those in use stay, the least recently used is removed, the budget is kept."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from data_loading.remote.disk_budget import Cache, Hold, NoRoom, alone, hold
from tests.searched import examples

FILE_BYTES = 8192


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache with room for two files."""
    return cache_for(tmp_path, 2)


def cache_for(root: Path, files: int) -> Cache:
    (root / "set").mkdir()
    return Cache(root, Cache(root, None).held_bytes() + files * FILE_BYTES + 4096)


def downloaded(cache: Cache, name: str, *, is_ahead: bool = False) -> Path:
    """Make a file as a download does, without a store."""
    path = cache.root / "set" / name
    if not path.exists():
        with alone(path) as is_mine:
            assert is_mine
            cache.reserve(path, FILE_BYTES, is_ahead=is_ahead)
    return path


def held(path: Path) -> Hold:
    found = hold(path)
    assert found is not None
    return found


def set_last_use(path: Path, written_s: int, used_s: int) -> None:
    os.utime(path, (written_s, written_s))
    os.utime(path.with_name(f".{path.name}.use"), (used_s, used_s))


def test_file_in_use_stays(cache: Cache) -> None:
    first, second = (downloaded(cache, name) for name in ("first", "second"))
    uses = held(first), held(second)
    with pytest.raises(NoRoom):
        downloaded(cache, "third")
    uses[1].close()
    downloaded(cache, "third")
    assert first.exists()
    assert not second.exists()


def test_least_recently_used_file_goes_first(cache: Cache) -> None:
    first, second = (downloaded(cache, name) for name in ("first", "second"))
    set_last_use(first, written_s=1000, used_s=3000)
    set_last_use(second, written_s=2000, used_s=2500)
    downloaded(cache, "third")
    assert first.exists()
    assert not second.exists()


def test_download_ahead_removes_used_files_only(cache: Cache) -> None:
    unused, used = (downloaded(cache, name) for name in ("unused", "used"))
    set_last_use(unused, written_s=1000, used_s=1000)
    set_last_use(used, written_s=1000, used_s=2000)
    ahead = downloaded(cache, "ahead", is_ahead=True)
    assert unused.exists()
    assert not used.exists()
    with pytest.raises(NoRoom):
        downloaded(cache, "another", is_ahead=True)
    downloaded(cache, "needed")
    assert not unused.exists()
    assert ahead.exists()


def test_unfinished_download_of_no_process_goes(cache: Cache) -> None:
    target = cache.root / "set" / "killed"
    with alone(target):
        cache.reserve(target.with_name(".killed.part"), 2 * FILE_BYTES)
    downloaded(cache, "needed")
    assert not target.with_name(".killed.part").exists()


def test_killed_process_leaves_no_lock(cache: Cache, root: Path) -> None:
    path = downloaded(cache, "file")
    script = "import sys, time; from pathlib import Path; from data_loading.remote.disk_budget import hold; "
    script += "kept = hold(Path(sys.argv[1])); print(kept, flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=root, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    with alone(path) as is_mine:
        assert not is_mine
    other.send_signal(signal.SIGKILL)
    other.communicate()
    with alone(path) as is_mine:
        assert is_mine


def test_fork_neither_releases_nor_keeps_a_lock(cache: Cache) -> None:
    first, second = (downloaded(cache, name) for name in ("first", "second"))
    uses = held(first), held(second)
    mine, childs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        uses[0].close()
        childs.send(b"closed")
        childs.recv(1)  # until the parent closes its end
        os._exit(0)
    childs.close()
    assert mine.recv(6) == b"closed"
    with alone(first) as is_mine:
        assert not is_mine
    uses[1].close()
    with alone(second) as is_mine:
        assert is_mine
    mine.close()
    os.waitpid(child, 0)


class Processes(RuleBasedStateMachine):
    """Three processes (each opens the lock files itself) with six files, and room for three."""

    who, what = st.integers(0, 2), st.integers(0, 5)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.cache = cache_for(Path(self._folder.name), 3)
        self.uses: dict[int, tuple[Path, Hold]] = {}

    def teardown(self) -> None:
        for who in list(self.uses):
            self.ends(who)
        self._folder.cleanup()

    @rule(who=who, what=what)
    def reads(self, who: int, what: int) -> None:
        """One file at a time; there is always room for it."""
        self.ends(who)
        path = downloaded(self.cache, str(what))
        self.uses[who] = path, held(path)

    @rule(what=what)
    def downloads_ahead(self, what: int) -> None:
        try:
            downloaded(self.cache, str(what), is_ahead=True)
        except NoRoom:
            return

    @rule(who=who)
    def ends(self, who: int) -> None:
        if who in self.uses:
            self.uses.pop(who)[1].close()

    @invariant()
    def files_in_use_are_there(self) -> None:
        assert all(path.exists() for path, _ in self.uses.values())

    @invariant()
    def the_budget_is_kept(self) -> None:
        assert self.cache.budget_bytes is not None
        assert self.cache.held_bytes() <= self.cache.budget_bytes


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=examples(20), stateful_step_count=30)
