"""Benchmarks of the loader: what is read, ratios and goals, and loaders that are left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import harness, loading, loading_order, loading_resume
from benchmarks.loading import BOUNDED, CASES, OURS, PREAD, REPLACED, SHAPES
from benchmarks.loading_floor import STATES, AgainstFloor, Floor
from benchmarks.loading_measure import Job, check, measure, pairs, resident
from benchmarks.loading_peers import LOADERS
from benchmarks.processes import BENCHMARKS, LeftOut
from data_loading import StreamingDataset

OFFLINE = "no network"
TOKENS, SEQ_LEN, BATCH = 20_000, 16, 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    loading.write_tokens(tmp_path / "tokens.npy", TOKENS)
    return tmp_path / "tokens.npy"


def prepared(name: str, path: Path) -> Path:
    folder = path.parent / name
    folder.mkdir()
    LOADERS[name].prepare(path, folder, SEQ_LEN)
    return folder


@pytest.mark.parametrize("name", ["Ours", "Floor", "Replaced", "NanoGpt"])
def test_loader_gives_windows_of_the_tokens(name: str, path: Path) -> None:
    folder, ids, job = prepared(name, path), np.load(path), Job(SEQ_LEN, BATCH)
    every = {ids[start : start + SEQ_LEN + 1].tobytes() for start in range(TOKENS - SEQ_LEN)}
    stream, seen = pairs(LOADERS[name].batches(folder, job)), []
    for _ in range(TOKENS // SEQ_LEN // BATCH * 2):  # continues in the next epoch
        inputs, labels = next(stream)
        check((inputs, labels), job)
        rows = torch.cat([inputs, labels[:, -1:]], 1).numpy().astype("<u2")
        seen += [row.tobytes() for row in rows]
    assert set(seen) <= every
    assert len(set(seen)) > TOKENS // SEQ_LEN * 0.8
    assert seen != sorted(seen)


@pytest.mark.parametrize("reader", ["mmap", "pread"])
def test_floor_reads_the_windows_of_the_loader(
    path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, list[list[int]]] = {"ours": [], "floor": []}
    floor_read, ours_read = Floor.read, StreamingDataset.read

    def spied_floor(self: Floor, starts: np.ndarray) -> np.ndarray:
        found = floor_read(self, starts)
        read["floor"] += found[:, :-1].tolist()
        return found

    def spied(self: StreamingDataset, epoch: int, start: int, stop: int) -> object:
        found = ours_read(self, epoch, start, stop)
        read["ours"] += found["input_ids"].tolist()
        return found

    monkeypatch.setattr(Floor, "read", spied_floor)
    monkeypatch.setattr(StreamingDataset, "read", spied)
    monkeypatch.setattr(StreamingDataset, "batches_per_read", lambda *_: 1)
    against = AgainstFloor(StreamingDataset(path, seq_len=SEQ_LEN, reader=reader), 12)
    assert against.batches_in(0.01) >= 10
    for number, state in enumerate((*STATES, "cached")):
        read["ours"].clear()
        read["floor"].clear()
        pair = against.round(state, 7, ours_first=number % 2 == 0)
        assert pair.ours.batches == pair.floor.batches == 7
        windows = 7 * 12  # a batch over the end of an epoch is read in two parts
        assert read["floor"][-windows:] == read["ours"][-windows:]


def test_files_of_templar_hold_the_tokens(path: Path) -> None:
    folder = prepared("Templar", path)
    written = np.load(folder / "train_000000.npy")
    assert written.dtype == np.uint32
    assert np.array_equal(written, np.load(path)[: TOKENS // SEQ_LEN * SEQ_LEN])
    assert (folder / "sample_ids_000000.bin").stat().st_size == TOKENS // SEQ_LEN * 8


def test_other_batches_are_refused() -> None:
    good, job = torch.arange(12).reshape(2, 6), Job(5, 2)
    check((good[:, :-1], good[:, 1:]), job)
    for wrong in ((good[:, :-1], good[:, :-1]), (good[:, :-1].int(), good[:, 1:]), (good, good)):
        with pytest.raises(RuntimeError):
            check(wrong, job)


def test_measurement_counts_batches_and_memory(path: Path) -> None:
    folder = prepared("Replaced", path)
    job = Job(SEQ_LEN, BATCH, warm_up=5, batches=30, batches_at_least=30, seconds=0)
    threads = torch.get_num_threads()
    found = measure(lambda: LOADERS["Replaced"].batches(folder, job), job)
    torch.set_num_threads(threads)
    assert (found["batches"], found["read_batches"]) == (30, 35)
    assert found["tokens_s"] == pytest.approx(30 * BATCH * SEQ_LEN / found["seconds"])
    assert set(found["growth_bytes"]) == {"RssAnon", "RssFile", "RssShmem", "VmRSS"}


def test_memory_of_child_processes_counts() -> None:
    code = "held = bytearray(b'x') * (64 << 20); print('ready', flush=True); input()"
    before, pipe = resident(), subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    grown = resident()["RssAnon"] - before["RssAnon"]
    child.communicate("\n")
    assert 60 << 20 < grown < 120 << 20


def test_loaders_are_all_used_and_their_packages_pinned() -> None:
    assert {case.loader for case in CASES.values()} == set(LOADERS)
    lines = (BENCHMARKS / "loading_peers.txt").read_text().splitlines()
    pins = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    assert {loader.package for loader in LOADERS.values() if loader.package} <= pins
    assert not any(pin.startswith(("torch", "nvidia", "triton")) for pin in pins)


def test_peer_that_fails_is_left_out_and_ours_must_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(requirements: str) -> Path:
        raise LeftOut(OFFLINE)

    monkeypatch.setattr(loading, "peers_python", no_pip)
    monkeypatch.setattr(loading.Bench, "_prepare", lambda *_: None)
    flags: dict[str, Any] = {"folder": Path, "templar": Path, "tokens": (14, 14)}
    bench = loading.Bench(harness.options("", ["--folder", str(tmp_path)], **flags))
    assert bench.left_out["Grain"] == OFFLINE
    assert bench.left_out["templar"] == "no --templar CHECKOUT"
    assert bench.call("nanoGPT", "measure", tmp_path / "missing", "{}") is None
    assert "nanoGPT" not in bench.there()
    with pytest.raises(RuntimeError):
        bench.call(OURS, "measure", tmp_path / "missing", "{}")


def test_goals_of_the_loader() -> None:
    over = {OURS: 1.0, PREAD: 1.1, REPLACED: 3.33, "nanoGPT": 5.0, "templar": 1.67}
    speed = [
        {"seq_len": shape[0], "loader": name, "ours_over_this": {"median": ratio}}
        for shape in SHAPES
        for name, ratio in over.items()
    ]
    growth = {"VmRSS": 1.0, "RssAnon": 1.0, "peak of VmRSS": 70.0}
    floor = {"reader": "mmap", "pages": "mapped", "share_of_floor": {"median": 0.75}}
    cold = {"seq_len": 1024, "batch_size": 32, "loader": OURS, "read_over_useful": 3.0}
    found = {
        "speed": speed, "memory": [{"loader": name, "growth_mb": growth} for name in (PREAD, BOUNDED)],
        "against_floor": [floor | {"seq_len": seq_len} for seq_len, _ in SHAPES], "cold": [cold],
    }  # fmt: skip
    met = {goal["what"]: (goal["measured"], goal["met"]) for goal in loading.goals(found)}
    assert met["1024 x 32, ours / the best peer"] == (1.67, False)
    assert met["1024 x 32, ours / the replaced system"] == (3.33, False)
    assert met["1024 x 32, share of the floor, mapped"] == (0.75, True)
    assert met["128 x 256, share of the floor, mapped"] == (0.75, False)
    assert met["RSS of pread"] == (1.0, True)
    assert met["highest RSS, ours, mmap of at most 64 MB"] == (70.0, False)
    assert met["1024 x 32, cold, read / useful, ours, mmap"] == (3.0, True)


def test_tokens_are_written_once_and_alike(tmp_path: Path) -> None:
    loading.write_tokens(tmp_path / "a.npy", 1000)
    first = (tmp_path / "a.npy").read_bytes()
    loading.write_tokens(tmp_path / "a.npy", 5)
    loading.write_tokens(tmp_path / "b.npy", 1000)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes() == first
    loading.write_tokens(tmp_path / "c.npy", 1000, 257)
    assert int(np.load(tmp_path / "c.npy").max()) == 256


def test_another_stream_after_resume_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_resume, "SEQ_LEN", 8)
    monkeypatch.setattr(loading_resume, "COMPARED", 10)
    rows, samples = loading_resume.exactness(path)
    assert [row["same"] for row in rows] == [True] * 3
    dataset = loading_resume.open_dataset(path)
    assert abs(samples / len(dataset) - 0.8) < 0.03
    loader = type(dataset.loader(1))
    load = loader.load_state_dict

    def shifted(self: Any, state: dict[str, Any]) -> None:
        load(self, state | {"samples": state["samples"] + (self.rank == 1)})

    monkeypatch.setattr(loader, "load_state_dict", shifted)
    rows, _ = loading_resume.exactness(path)
    assert [row["same"] for row in rows] == [True, False, False]


def test_order_holds_little_memory() -> None:
    assert loading_order.memory_bytes(10**12) < 4 << 20
