"""Which files may go: what is used now stays, what is wanted later gives way to what is needed now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from data_loading.remote.cache import Cache, NoRoom, Use
from data_loading.remote.items import Item, whole
from data_loading.remote.remote_set import RemoteOptions, RemoteSet, open_remote
from tests.data_loading.remote.conftest import upload
from tests.searched import examples

FILE_BYTES = 8192


def fetch(cache: Cache, use: Use, *, is_ahead: bool = False) -> None:
    """As a helper does, with the store left out."""
    if not use.target.exists():
        cache.reserve(use.target, FILE_BYTES, is_ahead=is_ahead)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """With room for two files."""
    (tmp_path / "cache/set").mkdir(parents=True)
    cache = Cache(tmp_path / "cache", None)
    return Cache(cache.root, cache.held_bytes() + 2 * FILE_BYTES + 4096)


def named(cache: Cache, name: str) -> Path:
    return cache.root / "set" / name


def test_what_is_wanted_later_gives_way_to_what_is_needed_now(cache: Cache) -> None:
    now, later, needed = (Use(named(cache, name)) for name in ("now", "later", "needed"))
    fetch(cache, now)
    fetch(cache, later)
    later.for_later()
    with pytest.raises(NoRoom):
        fetch(cache, needed, is_ahead=True)
    fetch(cache, needed)
    assert now.target.exists()
    assert not later.target.exists()
    with pytest.raises(NoRoom):
        fetch(cache, Use(named(cache, "one_more")))


def test_what_nobody_wants_goes_first(cache: Cache) -> None:
    """Though it was used later than what is wanted."""
    later, unwanted, needed = (Use(named(cache, name)) for name in ("later", "unwanted", "needed"))
    fetch(cache, later)
    later.for_later()
    fetch(cache, unwanted)
    unwanted.close()
    fetch(cache, needed)
    assert later.target.exists()
    assert not unwanted.target.exists()
    later.for_now()  # from here on it stays
    with pytest.raises(NoRoom):
        fetch(cache, Use(named(cache, "one_more")))


def test_nothing_is_fetched_ahead_while_one_waits_for_room(cache: Cache) -> None:
    other = Cache(cache.root, cache.budget_bytes)
    other.set_short(True)
    assert cache.someone_is_short()
    with pytest.raises(NoRoom):
        fetch(cache, Use(named(cache, "later")), is_ahead=True)
    fetch(cache, Use(named(cache, "now")))
    other.set_short(False)
    assert not cache.someone_is_short()
    fetch(cache, Use(named(cache, "later")), is_ahead=True)


class Holders(RuleBasedStateMachine):
    """Three processes (each opens the lock files for itself) with six files, and room for three."""

    who, what = st.integers(0, 2), st.integers(0, 5)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        (root / "set").mkdir()
        begun = Cache(root, None).held_bytes()
        self.cache = Cache(root, begun + 3 * FILE_BYTES + 4096)
        self.holds: dict[tuple[int, int], Use] = {}

    def teardown(self) -> None:
        for use in self.holds.values():
            use.close()
        self._folder.cleanup()

    def target(self, what: int) -> Path:
        return self.cache.root / "set" / str(what)

    @rule(who=who, what=what)
    def needs(self, who: int, what: int) -> None:
        """One at a time, as a reader of shards; it always gets it."""
        for (one, other), use in self.holds.items():
            if one == who and other != what:
                use.for_later()
        if (who, what) not in self.holds:
            self.holds[who, what] = Use(self.target(what))
        use = self.holds[who, what]
        use.for_now()
        fetch(self.cache, use)
        assert use.target.exists()

    @rule(who=who, what=what)
    def fetches_ahead(self, who: int, what: int) -> None:
        if (who, what) in self.holds:
            return
        before = {number for number in range(6) if self.target(number).exists() and self.is_wanted(number)}
        use = Use(self.target(what))
        try:
            fetch(self.cache, use, is_ahead=True)
        except NoRoom:
            use.close()
            return
        use.for_later()
        self.holds[who, what] = use
        assert all(self.target(number).exists() for number in before)

    @rule(who=who, what=what)
    def is_done(self, who: int, what: int) -> None:
        if (use := self.holds.pop((who, what), None)) is not None:
            use.close()

    def is_wanted(self, number: int) -> bool:
        return any(what == number for _, what in self.holds)

    @invariant()
    def what_is_used_is_there(self) -> None:
        assert all(use.target.exists() for use in self.holds.values() if use.is_for_now)

    @invariant()
    def the_budget_is_kept(self) -> None:
        assert self.cache.budget_bytes is not None
        assert self.cache.held_bytes() <= self.cache.budget_bytes


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=examples(30), stateful_step_count=30)


class Helping:
    """A helper, spoken to as its process does."""

    def __init__(self, remote: RemoteSet) -> None:
        setup = {
            "uri": remote.name, "folder": str(remote.folder), "budget_bytes": remote.options.budget_bytes,
            "workers": 2, "part_bytes": 4000, "verify": "set",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "data_loading.remote.helper"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parents[3],)))},
        )  # fmt: skip
        self._number = 0
        self._say(setup)

    def _say(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def want(self, required: list[Item], ahead: list[Item]) -> None:
        self._number += 1
        self._say(
            {
                "number": self._number,
                "required": [item.word for item in required],
                "ahead": [item.word for item in ahead],
            }
        )

    def hears_ready(self, item: Item) -> None:
        """Wait until it says so."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            assert "error" not in told, told
            if told.get("ready") == item.word:
                return
        raise AssertionError("the helper ended")

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def remote(bucket: Any, make_set: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[..., RemoteSet]]:
    """Opens a set of five shards with room for so many."""
    upload(bucket, make_set(30_000, 7_000), "c4")
    there: list[RemoteSet] = []

    def opened(shards: int | None) -> RemoteSet:
        budget = None
        if shards is not None:
            one = opened(None)
            budget = shards * (1 << 14) + one.small_bytes
        there.append(open_remote("s3://sets/c4", RemoteOptions(tmp_path / "cache", budget)))
        return there[-1]

    yield opened
    for one in there:
        one.close()


@pytest.fixture
def helping() -> Iterator[Callable[[RemoteSet], Helping]]:
    there: list[Helping] = []

    def start(remote: RemoteSet) -> Helping:
        there.append(Helping(remote))
        return there[-1]

    yield start
    for one in there:
        one.close()


def fill_up(remote: RemoteSet) -> None:
    """What the budget leaves for small files is taken, but for half a shard."""
    cache, budget = Cache(remote.options.cache, None), remote.options.budget_bytes
    assert budget is not None
    (cache.root / "fills_up").write_bytes(bytes(budget - cache.held_bytes() - (1 << 13)))


@pytest.mark.timeout(300)
def test_a_reader_that_idles_keeps_nobody_waiting(
    remote: Callable[..., RemoteSet], helping: Callable[[RemoteSet], Helping]
) -> None:
    """It uses one shard and has fetched another one ahead: the budget. Two workers of a loader did this."""
    of = remote(2)
    first, second, third = (whole(of.parts[number], number) for number in range(3))
    idle, other = helping(of), helping(of)
    idle.want([first], [second])
    idle.hears_ready(first)
    idle.hears_ready(second)
    fill_up(of)
    other.want([third], [])
    other.hears_ready(third)
    assert of.place(first).exists()
    assert not of.place(second).exists()
    other.want([], [])
    idle.hears_ready(second)  # it saw that it went, and fetches it again now that there is room
    assert of.place(first).exists()
    other.want([third], [])
    other.hears_ready(third)
    idle.want([second], [])  # it does not believe that what it once had is still there
    idle.hears_ready(second)
    assert of.place(second).exists()
