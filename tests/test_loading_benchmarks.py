"""What can be wrong in silence in the benchmarks of the loader: what is read, ratios, who is left out."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import loading, loading_order, loading_resume
from benchmarks.loading_parts import figures, files, limited, report
from benchmarks.loading_parts.loaders import BOUNDED, LOADERS, OURS, PEERS, PREAD, REPLACED, SHAPES, Loader
from benchmarks.loading_peers import floor, nanogpt, ours, peer, replaced, templar

TOKENS = 20_000
SEQ_LEN, BATCH = 16, 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    files.write_tokens(tmp_path / "tokens.npy", TOKENS)
    return tmp_path / "tokens.npy"


def prepared(module: ModuleType, path: Path) -> Path:
    folder = path.parent / module.__name__.rpartition(".")[2]
    folder.mkdir()
    module.prepare(path, folder, SEQ_LEN)
    return folder


@pytest.mark.parametrize("module", [ours, floor, replaced, nanogpt], ids=lambda module: module.__name__)
def test_a_loader_gives_windows_of_the_tokens(module: ModuleType, path: Path) -> None:
    folder, ids = prepared(module, path), np.load(path)
    every = {ids[start : start + SEQ_LEN + 1].tobytes() for start in range(TOKENS - SEQ_LEN)}
    stream = iter(module.batches(folder, peer.Job(SEQ_LEN, BATCH)))
    seen = []
    for _ in range(TOKENS // SEQ_LEN // BATCH * 2):  # goes on in the next epoch
        inputs, labels = next(stream)
        peer.check((inputs, labels), peer.Job(SEQ_LEN, BATCH))
        rows = torch.cat([inputs, labels[:, -1:]], 1).numpy().astype("<u2")
        seen += [row.tobytes() for row in rows]
    assert set(seen) <= every
    assert len(set(seen)) > TOKENS // SEQ_LEN * 0.8
    assert seen != sorted(seen)


def test_the_floor_reads_the_windows_of_ours_in_their_order(path: Path) -> None:
    folder = prepared(ours, path)
    streams = [iter(module.batches(folder, peer.Job(SEQ_LEN, BATCH))) for module in (ours, floor)]
    for _ in range(TOKENS // SEQ_LEN // BATCH - 1):
        (one, _), (other, _) = (next(stream) for stream in streams)
        assert torch.equal(one, other)


def test_the_format_of_templar_holds_the_tokens(path: Path) -> None:
    folder = prepared(templar, path)
    written = np.load(folder / "train_000000.npy")
    assert written.dtype == np.uint32
    assert np.array_equal(written, np.load(path)[: TOKENS // SEQ_LEN * SEQ_LEN])
    assert (folder / "sample_ids_000000.bin").stat().st_size == TOKENS // SEQ_LEN * 8


def test_batches_that_are_not_what_the_others_give_are_refused() -> None:
    good = torch.arange(12).reshape(2, 6)
    job = peer.Job(5, 2)
    peer.check((good[:, :-1], good[:, 1:]), job)
    for wrong in ((good[:, :-1], good[:, :-1]), (good[:, :-1].int(), good[:, 1:]), (good, good)):
        with pytest.raises(RuntimeError):
            peer.check(wrong, job)


def test_a_measurement_counts_what_was_read(path: Path) -> None:
    folder = prepared(replaced, path)
    job = peer.Job(SEQ_LEN, BATCH, warm_up=5, batches=30, batches_at_least=30, seconds=0)
    threads = torch.get_num_threads()
    found = peer.measure(replaced.batches, folder, job)
    torch.set_num_threads(threads)
    assert found["batches"] == 30
    assert found["read_batches"] == 35
    assert found["tokens_s"] == pytest.approx(30 * BATCH * SEQ_LEN / found["seconds"])
    assert found["peak_growth_bytes"] >= found["growth_bytes"]["VmRSS"]
    assert set(found["growth_bytes"]) == {"RssAnon", "RssFile", "RssShmem", "VmRSS"}


def test_memory_of_workers_counts() -> None:
    code = "held = bytearray(b'x') * (64 << 20); print('ready', flush=True); input()"
    before = peer.resident()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    grown = peer.resident()["RssAnon"] - before["RssAnon"]
    child.communicate("\n")
    assert 60 << 20 < grown < 120 << 20


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_each_loader_has_commands_whose_script_is_there(loader: Loader, tmp_path: Path) -> None:
    python = tmp_path / "python-of-the-peers"
    command = loader.measure_command(python, tmp_path, "{}")
    script = Path(command[1])
    compile(script.read_text(), str(script), "exec")
    assert command[0] == (str(python) if loader.package else sys.executable)
    assert loader.folder(tmp_path, 8) == loader.folder(tmp_path, 9) or loader.by_window
    pins = (loading.REQUIREMENTS).read_text()
    assert f"{loader.package}==" in pins


def test_all_scripts_are_used_and_all_packages_pinned() -> None:
    assert {path.name for path in PEERS.glob("*.py")} == {loader.script for loader in LOADERS} | {"peer.py"}
    pins = [line for line in loading.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all("==" in pin for pin in pins)
    assert not any(pin.startswith(("torch", "nvidia", "triton")) for pin in pins)


def bench(tmp_path: Path, *arguments: str) -> loading.Bench:
    return loading.Bench(
        loading.parser().parse_args(["--folder", str(tmp_path / "files"), "--tokens", "14", *arguments])
    )


def test_who_cannot_be_measured_is_told_and_ours_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_pip(*_: Any) -> Path:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(loading.peers_venv, "peers_python", no_pip)
    made = bench(tmp_path, "--only", "templar,Grain")
    made.loaders = [one for one in made.loaders if one.is_peer]
    made.prepare()
    assert made.left_out["Grain"].startswith("pip: ")
    assert made.left_out["templar"] == "no --templar CHECKOUT"
    assert "templar is left out: no --templar CHECKOUT" in capsys.readouterr().err
    assert made._there() == []
    failing = ["sh", "-c", "echo why >&2; exit 3"]
    assert made._run(Loader("peer", "x.py"), failing) is None
    assert made.left_out["peer"] == "why"
    with pytest.raises(SystemExit, match="ours failed: why"):
        made._run(Loader("ours", "ours.py"), failing)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_command_over_small_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: dict[str, Any] = {}
    monkeypatch.setattr(loading, "SHAPES", ((64, 8),))
    monkeypatch.setattr(loading, "save", lambda name, found: saved.update({name: found}))
    monkeypatch.setattr(loading.peers_venv, "peers_python", lambda *_: Path(sys.executable))
    monkeypatch.setattr(loading.peers_venv, "versions", lambda *_: {})
    monkeypatch.setattr(report, "_WANTED", {(64, 8): report._WANTED[1024, 32]})
    options = ["--only", "nanoGPT", "--rounds", "1", "--seconds", "0.05", "--memory-batches", "30"]
    folder = ["--folder", str(tmp_path), "--tokens", "16"]
    monkeypatch.setattr(sys, "argv", ["loading.py", *options, *folder])
    loading.main()
    found = saved["loading"]
    assert {row["loader"] for row in found["speed"]} == {
        one.name for one in LOADERS if not one.is_peer or one.name == "nanoGPT"
    }
    assert found["left_out"] == {}
    assert {row["pages"] for row in found["against_floor"]} == {"mapped", "cached", "cold"}


def taken(tokens_s: float) -> dict[str, Any]:
    growth = dict.fromkeys(("VmRSS", "RssAnon", "RssFile"), 1 << 20)
    return {
        "tokens_s": tokens_s, "batches": 10, "growth_bytes": growth, "read_bytes": 10 * 1024 * 32 * 2 * 3,
        "read_batches": 10, "peak_growth_bytes": 70 << 20,
    }  # fmt: skip


def test_ratios_are_of_one_round_and_goals_of_the_best_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {OURS: 100.0, PREAD: 90.0, BOUNDED: 80.0, REPLACED: 30.0, "nanoGPT": 20.0, "templar": 60.0}
    rounds = [
        {shape: {name: taken(value * factor * 1e6) for name, value in speeds.items()} for shape in SHAPES}
        for factor in (1, 5, 3)
    ]
    made = argparse.Namespace(
        loaders=[one for one in LOADERS if one.name in speeds], versions=dict, left_out={"Grain": "no pip"}
    )
    pairs = [
        {
            "seq_len": seq_len, "batch_size": batch_size, "reader": "mmap", "pages": pages, "batches": 5,
            "ours_us": {"median": 10.0}, "floor_us": {"median": 8.0}, "share_of_floor": {"median": 0.75},
            "share_of_floor_by_cpu": {"median": 0.9},
            "ours_read_over_useful": 3.0, "floor_read_over_useful": 70.0,
        }
        for seq_len, batch_size in SHAPES
        for pages in ("mapped", "cold")
    ]  # fmt: skip
    options = loading.parser().parse_args([])
    by_name = rounds[0][SHAPES[0]]
    found = report.result(options, made, rounds, rounds[0], by_name, {SHAPES[0]: by_name}, pairs)  # type: ignore[arg-type]
    row = next(row for row in found["speed"] if row["loader"] == "templar")
    assert row["ours_over_this"]["median"] == pytest.approx(100 / 60, abs=1e-5)
    assert row["million_tokens_s"]["median"] == 180.0
    met = {goal["what"]: (goal["measured"], goal["met"]) for goal in found["goals"]}
    assert met["1024 x 32, ours / the best peer"] == (1.67, False)
    assert met["1024 x 32, ours / the replaced system"] == (3.33, False)
    assert met["1024 x 32, share of the floor, mapped"] == (0.75, True)
    assert met["128 x 256, share of the floor, mapped"] == (0.75, False)
    assert met["RSS of pread"] == (1.0, True)
    assert met["highest RSS, ours, mmap of at most 64 MB"] == (70.0, False)
    assert met["1024 x 32, cold, read / useful, ours, mmap"] == (3.0, True)
    said = {
        "date": "2000-01-01",
        "machine": {"cpu": "x", "cores": 2},
        "versions": {"torch": "2", "python": "3"},
    }
    monkeypatch.setattr(figures, "read", lambda name: json.loads(json.dumps({**found, **said})))
    page = figures.speed()
    assert "| templar | 180.0 | 60.0 to 300.0 | 1.7 | 180.0 |" in page
    assert "| mmap | cold | 1024 x 32 | 10 | 8 | 75% |  | 3.0 | 70.0 |" in page
    assert "| mmap | mapped | 1024 x 32 | 10 | 8 | 75% | 90% |  |  |" in page
    assert "Left out: Grain (no pip)." in page
    assert "| templar | 1.0 | 1.0 | 1.0 | 70.0 |" in figures.memory()


def test_tokens_are_written_once_and_alike(tmp_path: Path) -> None:
    files.write_tokens(tmp_path / "a.npy", 1000)
    first = (tmp_path / "a.npy").read_bytes()
    files.write_tokens(tmp_path / "a.npy", 5)
    assert (tmp_path / "a.npy").read_bytes() == first
    files.write_tokens(tmp_path / "b.npy", 1000)
    assert (tmp_path / "b.npy").read_bytes() == first
    files.write_tokens(tmp_path / "c.npy", 1000, 257)
    assert int(np.load(tmp_path / "c.npy").max()) == 256


def test_exactness_is_found_and_its_absence_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_resume, "SEQ_LEN", 8)
    monkeypatch.setattr(loading_resume, "WORKERS", (0,))
    monkeypatch.setattr(loading_resume, "_COMPARED", 10)
    rows, samples = loading_resume.exactness(path)
    assert [row["same"] for row in rows] == [True] * 3
    dataset = loading_resume.open_dataset(path)
    assert abs(samples / len(dataset) - 0.8) < 0.03
    loader = type(dataset.loader(1))
    load = loader.load_state_dict
    monkeypatch.setattr(
        loader,
        "load_state_dict",
        lambda self, state: load(self, state | {"samples": state["samples"] + (self.rank == 1)}),
    )
    rows, _ = loading_resume.exactness(path)
    assert [row["same"] for row in rows] == [True, False, False]


def test_an_order_is_measured_over_all_its_windows() -> None:
    assert 0 < loading_order.nanoseconds(10**12, 0) < 10_000
    assert loading_order.memory_bytes(10**12) < 4 << 20


def test_without_the_right_to_limit_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited.limited(None) as before:
        assert before == []
    monkeypatch.setattr(limited, "find_levels", lambda *_: (2, ()))
    monkeypatch.setattr(limited, "_ROOTS", {2: tmp_path / "no" / "cgroup"})
    with pytest.raises(limited.CannotLimit, match="needs root"), limited.limited(1 << 20):
        pass


@pytest.mark.privileged
def test_a_command_under_a_limit_cannot_hold_more() -> None:
    command = [sys.executable, "-c", "import sys; print(len(bytearray(b'x') * (int(sys.argv[1]) << 20)))"]
    try:
        with limited.limited(100 << 20) as before:
            fits = subprocess.run([*before, *command, "20"], capture_output=True)
            too_much = subprocess.run([*before, *command, "300"], capture_output=True)
    except limited.CannotLimit as error:
        pytest.skip(str(error))
    assert fits.returncode == 0
    assert too_much.returncode == -9
