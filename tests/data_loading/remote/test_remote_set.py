"""A stored set gives the batches of the same set on a disk, within its budget, with faults of the store."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_loading import StreamingDataset
from data_loading import interruptible_wait as waiting
from data_loading.remote import set_cache
from data_loading.remote.disk_budget import Cache
from data_loading.remote.download import damaged_blocks, part_of
from data_loading.remote.remote_set import RemoteOptions, RemoteSet, open_remote
from data_loading.remote.stored_files import StoredFile
from experiment_utils.errors import UserError
from tests.data_loading.remote.conftest import KEY, SECRET, upload
from tests.data_loading.remote.faulty_proxy import FaultyProxy, Request
from tests.golden_text import Golden, refused

Open = Callable[..., RemoteSet]
SHARD_BYTES = 14_128


@pytest.fixture(scope="session")
def shards(make_set: Callable[..., Path]) -> Path:
    """Nine of 7,000 tokens of two bytes, the last one shorter."""
    return make_set(60_000, 7_000)


@pytest.fixture
def opened(bucket: Any, shards: Path, tmp_path: Path) -> Iterator[Open]:
    upload(bucket, shards, "c4")
    there: list[RemoteSet] = []

    def open_(budget: int | None = None, **options: Any) -> RemoteSet:
        there.append(open_remote("s3://sets/c4", RemoteOptions(tmp_path / "cache", budget, **options)))
        return there[-1]

    yield open_
    for one in there:
        one.close()


def rows(dataset: StreamingDataset, epochs: int = 1, batch: int = 64, **options: Any) -> np.ndarray:
    loader = dataset.loader(batch, **options)
    return np.concatenate([b["input_ids"].numpy() for _ in range(epochs) for b in loader])


def least(remote: RemoteSet) -> int:
    """The smallest budget with which it is opened."""
    with pytest.raises(UserError) as refused:
        open_remote(remote.name, RemoteOptions(remote.options.cache, 10_000 + remote.small_bytes))
    return int(str(refused.value).rpartition("=")[2].partition("K")[0]) * 1024


@pytest.mark.parametrize(
    "options",
    [
        {"order": "sequential"},
        {"order": "shuffled_shards", "shard_windows": 50},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {"order": "shuffled"},
                {"order": "shuffled_shards", "stride": 7, "shift": 3},
                {"order": "shuffled_shards", "documents": "masked"},
                {"order": "shuffled", "documents": "separate"},
                {"order": "shuffled_shards", "windows": "shifted", "step_windows": 64},
                {"order": "sequential", "windows": "streams", "step_windows": 64},
                {"order": "shuffled_shards", "split": "val"},
            )
        ),
    ],
)
def test_stream_equals_that_of_the_set_on_disk(opened: Open, shards: Path, options: dict[str, Any]) -> None:
    one = StreamingDataset(opened(), seq_len=32, **options)
    other = StreamingDataset(shards, seq_len=32, **options)
    assert one.fingerprint == other.fingerprint
    for here, there in zip(one.loader(64), other.loader(64), strict=True):
        assert here.keys() == there.keys()
        assert all((here[name] == there[name]).all() for name in here)


@pytest.mark.slow
def test_windows_over_several_shards(make_set: Callable[..., Path], bucket: Any, tmp_path: Path) -> None:
    """Shards that are shorter than a window."""
    tiny = make_set(3_000, 300)
    upload(bucket, tiny, "tiny")
    remote = open_remote("s3://sets/tiny", RemoteOptions(tmp_path / "cache"))
    try:
        for order in ("sequential", "shuffled_shards"):
            one = StreamingDataset(remote, seq_len=700, stride=100, order=order)
            assert np.array_equal(
                rows(one), rows(StreamingDataset(tiny, seq_len=700, stride=100, order=order))
            )
    finally:
        remote.close()


def test_the_budget_is_never_exceeded(opened: Open, shards: Path, tmp_path: Path) -> None:
    budget = least(opened())
    remote = opened(budget)
    dataset = StreamingDataset(remote, seq_len=32, order="shuffled_shards")
    cache, most, done = Cache(tmp_path / "cache", None), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], cache.held_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        found = rows(dataset, epochs=2)
    finally:
        done.set()
        watching.join()
    local = StreamingDataset(shards, seq_len=32, order="shuffled_shards")
    assert np.array_equal(found, rows(local, epochs=2))
    assert 2 * SHARD_BYTES < most[0] <= budget
    assert budget < 9 * SHARD_BYTES  # or nothing had to go


@pytest.mark.slow
def test_without_a_budget_everything_is_kept(opened: Open, proxy: FaultyProxy) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="shuffled_shards")
    once = rows(dataset)
    count = len(proxy.requests)
    rows(dataset)  # another epoch
    assert len(proxy.requests) == count
    assert len(once) == len(dataset)


def test_a_budget_that_is_too_small_is_refused(opened: Open, golden: Golden) -> None:
    budget = least(opened())
    with golden.refused("disk-budget-too-small"):
        opened(budget - 1024)
    with golden.refused("disk-budget-for-order"):
        StreamingDataset(opened(budget), seq_len=32, order="shuffled")
    train = StreamingDataset(remote := opened(budget), seq_len=32, order="shuffled_shards")
    with golden.refused("disk-budget-too-small"):
        StreamingDataset(remote, split="val", seq_len=32, order="sequential")
    assert len(train)


@pytest.mark.slow
def test_val_is_downloaded_once(opened: Open, proxy: FaultyProxy) -> None:
    """Not one request for it after its first reading, however many shards have come and gone."""
    remote = opened(least(opened()) + 24_000)
    train = StreamingDataset(remote, seq_len=32, order="shuffled_shards")
    val = StreamingDataset(remote, split="val", seq_len=32, order="sequential")
    first = rows(val)
    size = remote.geometry.block_tokens
    borders = [r.start for r in val.data.val_ranges]
    assert len(borders) == 1
    rows(train)
    inside = [p.tokens_path.name for p in remote.geometry.parts if p.first_token >= borders[0]]
    asked = [r for r in proxy.gets(".npy") if any(name in r.path for name in inside)]
    assert np.array_equal(rows(val), first)
    assert inside
    assert [r for r in proxy.gets(".npy") if any(name in r.path for name in inside)] == asked
    part = max(p.first_token for p in remote.geometry.parts if p.first_token <= borders[0])
    begun = (borders[0] - part) // size
    assert list(remote.folder.glob(f"*.blocks{begun}-*.npy"))


@pytest.mark.parametrize(
    "fault",
    [
        "wrong",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("500", "reset", "slow", "truncated", "short")),
    ],
)
def test_faults_of_the_store_change_no_window(
    opened: Open, shards: Path, proxy: FaultyProxy, fault: str
) -> None:
    def spoils(request: Request) -> str | None:
        return (
            fault if request.method == "GET" and request.attempt == 1 and "/shard_" in request.path else None
        )

    proxy.fault = spoils
    remote = opened(least(opened()), part_bytes=3000)
    dataset = StreamingDataset(remote, seq_len=32, order="shuffled_shards")
    assert np.array_equal(rows(dataset), rows(StreamingDataset(shards, seq_len=32, order="shuffled_shards")))
    assert {request.attempt for request in proxy.gets(".npy")} >= {1, 2}


@pytest.mark.slow
def test_only_the_first_shard_is_waited_for(opened: Open, proxy: FaultyProxy) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="sequential")
    proxy.fault = lambda request: "500" if "shard_00001" in request.path else None
    assert len(next(iter(dataset.loader(4)))["input_ids"]) == 4


def test_next_shards_are_downloaded_while_this_one_is_read(opened: Open, proxy: FaultyProxy) -> None:
    remote = opened()
    dataset = StreamingDataset(remote, seq_len=32, order="sequential")
    batches = iter(dataset.loader(4))
    next(batches)
    wanted = [remote.folder / f"shard_0000{number}.npy" for number in (1, 2, 3, 4)]
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in wanted):
        assert time.monotonic() < deadline, "nothing is fetched ahead"
        time.sleep(0.02)
    assert not (remote.folder / "shard_00006.npy").exists()


def test_resume_downloads_only_what_it_reads(opened: Open, shards: Path, proxy: FaultyProxy) -> None:
    local = StreamingDataset(shards, seq_len=32, order="sequential")
    loader = local.loader(50)
    whole = [batch["input_ids"] for batch in loader]
    dataset = StreamingDataset(opened(), seq_len=32, order="sequential")
    loader = dataset.loader(50)
    loader.load_state_dict({"epoch": 0, "samples": 1500, "fingerprint": local.fingerprint})
    rest = [batch["input_ids"] for batch in loader]
    assert all((a == b).all() for a, b in zip(rest, whole[30:], strict=True))
    asked = {r.path.partition("?")[0][-15:] for r in proxy.gets(".npy") if "docs" not in r.path}
    # The next epoch begins with shard 0, which may be fetched ahead at the end of this one.
    assert asked - {"shard_00000.npy"} == {"shard_00006.npy", "shard_00007.npy"}


def test_long_wait_ends_when_the_run_stops(
    opened: Open, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    monkeypatch.setattr(waiting, "PATIENCE_S", 0.1)
    dataset = StreamingDataset(opened(), seq_len=32, order="shuffled_shards")
    proxy.fault = lambda request: "500" if "/shard_" in request.path else None
    with waiting.checked_while_waiting(stop), pytest.raises(Stop):
        next(iter(dataset.loader(64)))
    proxy.fault = lambda request: None
    assert len(rows(dataset)) == len(dataset)


@pytest.mark.parametrize(("name", "value"), [("budget_bytes", 0), ("workers", -1), ("part_bytes", 1.5)])
def test_invalid_number_is_refused(name: str, value: float, golden: Golden) -> None:
    with golden.refused("count-invalid"):
        RemoteOptions(**{name: value})  # type: ignore[arg-type]


def test_a_vanished_object_is_named(opened: Open, bucket: Any, golden: Golden) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="sequential")
    bucket.delete_object(Bucket="sets", Key="c4/shard_00003.npy")
    with golden.refused("object-missing"):
        rows(dataset)


@pytest.mark.slow
def test_damaged_file_of_the_cache_is_downloaded_again(opened: Open, shards: Path) -> None:
    remote = opened()
    rows(StreamingDataset(remote, seq_len=32, order="sequential"))
    path = remote.folder / "shard_00002.npy"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    again = StreamingDataset(opened(), seq_len=32, order="sequential", verify="blocks")
    assert np.array_equal(rows(again), rows(StreamingDataset(shards, seq_len=32, order="sequential")))
    assert path.read_bytes() == (shards / "shard_00002.npy").read_bytes()


READ = """
import sys, hashlib
from pathlib import Path
from data_loading import StreamingDataset
from data_loading.remote.remote_set import RemoteOptions, open_remote
options = RemoteOptions(Path(sys.argv[1]), int(sys.argv[2]) or None, part_bytes=2000)
remote = open_remote("s3://sets/c4", options)
dataset = StreamingDataset(remote, seq_len=32, order="shuffled_shards", seed=int(sys.argv[3]))
found = hashlib.sha256()
for batch in dataset.loader(64):
    found.update(batch["input_ids"].numpy().tobytes())
print(found.hexdigest())
"""


FIRST_BLOCK = ("bytes=128-2127", "bytes=2128-4127", "bytes=4128-4223")
"""Ranges of `READ` that are also requested for heads."""


def digest(shards: Path, seed: int = 0) -> str:
    """Output of `READ` for the same set on the disk."""
    found = hashlib.sha256()
    for batch in StreamingDataset(shards, seq_len=32, order="shuffled_shards", seed=seed).loader(64):
        found.update(batch["input_ids"].numpy().tobytes())
    return found.hexdigest()


def reading(root: Path, cache: Path, budget: int = 0, seed: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READ, str(cache), str(budget), str(seed)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_fetch_each_shard_once(
    opened: Open, shards: Path, proxy: FaultyProxy, tmp_path: Path, root: Path
) -> None:
    opened()
    both = [reading(root, tmp_path / "cache") for _ in range(2)]
    outputs = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    asked = [(r.path, r.range) for r in proxy.gets(".npy") if r.range not in FIRST_BLOCK]
    assert len(asked) > 40
    assert len(set(asked)) == len(asked)
    assert not any(KEY in text or SECRET in text for pair in outputs for text in pair)


@pytest.mark.slow
def test_two_processes_share_a_budget_for_two_shards(
    opened: Open, shards: Path, tmp_path: Path, root: Path
) -> None:
    budget = least(opened())
    both = [reading(root, tmp_path / "cache", budget, seed) for seed in (1, 2)]
    cache, most = Cache(tmp_path / "cache", None), 0
    while any(process.poll() is None for process in both):
        most = max(most, cache.held_bytes())
        time.sleep(0.02)
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert [output.splitlines()[-1] for output, _ in outputs] == [digest(shards, seed) for seed in (1, 2)]
    assert most <= budget


def test_download_of_a_present_file_takes_no_lock(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock would make a reader of it wait, and stop what is downloaded ahead."""
    remote = opened()
    file = remote.geometry.tokens_file(0)
    remote.cache.hold(file)
    monkeypatch.setattr(set_cache, "alone", None)
    remote.cache._fetch(file, lambda: None, is_ahead=True)


def missing(path: Path, file: StoredFile) -> int:
    """Blocks that an unfinished download lacks; 0: there is no such download."""
    try:
        return len(damaged_blocks(path, file)) if path.exists() else 0
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_a_run_after_a_killed_one_keeps_verified_blocks(
    opened: Open, shards: Path, proxy: FaultyProxy, tmp_path: Path, root: Path
) -> None:
    remote, may_end = opened(), threading.Event()
    budget = least(remote)

    def hangs(request: Request) -> str | None:
        if "/shard_" in request.path and (request.range or "").startswith(("bytes=8320", "bytes=10320")):
            may_end.wait(240)
        return None

    proxy.fault = hangs
    first = reading(root, tmp_path / "cache", budget)
    files = {part_of(remote.folder / file.name): file for file in map(remote.geometry.tokens_file, range(8))}
    half: list[Path] = []
    while not (half := [path for path, file in files.items() if 0 < missing(path, file) <= 2]):
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    count = len(proxy.requests)
    may_end.set()
    output, _ = reading(root, tmp_path / "cache", budget).communicate(timeout=240)
    name = files[half[0]].name
    again = {r.range for r in proxy.requests[count:] if name in r.path} - set(FIRST_BLOCK)
    assert "bytes=8320-10319" in again
    assert not again & {"bytes=4224-6223", "bytes=6224-8223"}
    assert output.splitlines()[-1] == digest(shards)


def test_cache_of_the_earlier_version_is_used(
    opened: Open, shards: Path, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """It had three locks a file, a journal of each download, and a file for each head."""
    remote = opened()
    for number, part in enumerate(remote.geometry.parts):
        name, path = part.tokens_path.name, shards / part.tokens_path.name
        for kind in ("use", "ahead", "lock"):
            (remote.folder / f".{name}.{kind}").touch()
        if number:
            shutil.copy(path, remote.folder / name)
    half = bytearray((shards / "shard_00000.npy").read_bytes())
    half[5000:] = bytes(len(half) - 5000)
    (remote.folder / ".shard_00000.npy.part").write_bytes(half)
    (remote.folder / ".shard_00000.npy.parts").write_text("a journal")
    (remote.folder / "shard_00001.head32.npy").write_bytes(b"a head")
    dataset = StreamingDataset(opened(), seq_len=32, order="shuffled_shards")
    assert np.array_equal(rows(dataset), rows(StreamingDataset(shards, seq_len=32, order="shuffled_shards")))
    asked = {r.range for r in proxy.gets(".npy") if "docs" not in r.path}
    assert asked == {"bytes=4224-8319", "bytes=8320-12415", "bytes=12416-14127"}
    assert not (remote.folder / ".shard_00000.npy.parts").exists()


def test_a_forked_process_reads_the_cache_and_refuses_to_download(opened: Open, shards: Path) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="sequential")
    expected = dataset[0]["input_ids"]

    def in_fork(window: int) -> str:
        read_end, write_end = os.pipe()
        if (child := os.fork()) == 0:
            try:
                found = dataset[window]["input_ids"]
                answer = "equal" if (found == expected).all() else "different"
            except UserError as error:
                answer = error.code
            os.write(write_end, answer.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write_end)
        with open(read_end) as answered:
            return answered.read()

    assert in_fork(0) == "equal"
    assert in_fork(len(dataset) - 1) == "download-in-fork"


@pytest.mark.slow
def test_workers_of_a_torch_loader_read_the_same(opened: Open, shards: Path) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="shuffled_shards")
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=64, collate_fn=dataset.collate, num_workers=2, multiprocessing_context="spawn"
    )
    found = np.concatenate([batch["input_ids"].numpy() for batch in loader])
    assert np.array_equal(found, rows(StreamingDataset(shards, seq_len=32, order="shuffled_shards")))


def test_a_full_disk_is_named(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = StreamingDataset(opened(), seq_len=32, order="sequential")

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with refused("disk-space"):
        rows(dataset)


def test_no_room_for_long_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_cache, "_PATIENCE_S", 0.0)
    remote = opened(least(opened()))
    dataset = StreamingDataset(remote, seq_len=32, order="sequential")
    (remote.options.cache / "of_another_program").write_bytes(bytes(remote.options.budget_bytes))
    with refused("disk-budget-in-use"):
        rows(dataset)


@pytest.mark.privileged
def test_a_disk_that_fills_up_gives_way_to_what_is_needed(bucket: Any, shards: Path, tmp_path: Path) -> None:
    """On a real small disk: what is in nobody's use goes, as with a budget."""
    upload(bucket, shards, "c4")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    try:
        remote = open_remote("s3://sets/c4", RemoteOptions(place / "cache"))
        try:
            dataset = StreamingDataset(remote, seq_len=32, order="shuffled_shards")
            assert np.array_equal(
                rows(dataset), rows(StreamingDataset(shards, seq_len=32, order="shuffled_shards"))
            )
        finally:
            remote.close()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_set_whose_files_stay_asks_for_descriptors(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map and a lock of each."""
    asked: list[int] = []
    monkeypatch.setattr("data_loading.remote.stored_readers.allow_open_files", asked.append)
    StreamingDataset(opened(), seq_len=32, order="shuffled")
    assert asked
    assert asked[0] >= 2 * 9
