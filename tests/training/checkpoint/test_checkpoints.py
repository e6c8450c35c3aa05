"""Checkpoints are whole or skipped; the last K and the best stay."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiment_utils import atomic_files
from tests.closed import ERRORS, failing_reads
from tests.forked import exit_code_of, killed_at
from training.checkpoint.checkpoints import (
    Checkpoint,
    Checkpoints,
    CorruptError,
    _sealed,
    checkpoint_steps,
    load,
)
from training.checkpoint.read_safetensors import read_tensors


def checkpoint(step: int, best: int | None = None) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    return Checkpoint(
        weights={"embedding.weight": torch.randn(11, 3, generator=generator)},
        training={
            "optimizer.0.exp_avg": torch.randn(11, 3, generator=generator),
            "rng.cpu": torch.get_rng_state(),
        },
        state={
            "step": step,
            "best": best and {"step": best, "val_loss": 1.0},
            "data": {"epoch": 0, "samples": 4},
        },
    )


def assert_equal(found: Checkpoint | None, step: int) -> None:
    expected = checkpoint(step)
    assert found is not None
    assert found.state["step"] == step
    assert torch.equal(found.weights["embedding.weight"], expected.weights["embedding.weight"])
    assert torch.equal(found.training["optimizer.0.exp_avg"], expected.training["optimizer.0.exp_avg"])


def test_the_device_has_all_of_it_before_it_is_named(
    tmp_path: Path, synced: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    had: list[tuple[int, int]] = []
    to_be_renamed = "checkpoint:before_rename"
    monkeypatch.setattr(atomic_files, "on_point", lambda name: had.extend(synced * (name == to_be_renamed)))
    folder = Checkpoints(tmp_path, keep=2).save(checkpoint(5))
    files = {(path.stat().st_ino, path.stat().st_size) for path in folder.iterdir()}
    assert len(files) == 3
    assert files <= set(had)
    assert had[-1][0] == folder.stat().st_ino
    assert tmp_path.stat().st_ino in [inode for inode, _ in synced[len(had) :]]


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 8):
        checkpoints.save(checkpoint(step, best=min(step, 3)))
    assert checkpoint_steps(tmp_path) == [3, 6, 7]
    assert (tmp_path / "best").resolve() == tmp_path / "step-00000003"
    assert sorted(os.listdir(tmp_path)) == ["best", "step-00000003", "step-00000006", "step-00000007"]


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_corrupt_checkpoint_is_skipped_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    assert checkpoints.newest() is None
    checkpoints.save(checkpoint(1))
    path = checkpoints.save(checkpoint(2)) / name
    assert_equal(checkpoints.newest(), 2)
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(content[:-7])
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()
    with pytest.raises(CorruptError):
        load(path.parent)
    assert_equal(checkpoints.newest(), 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    checkpoints.save(checkpoint(2))
    assert_equal(checkpoints.newest(), 2)


@pytest.mark.parametrize(
    ("point", "survivors"),
    [
        ("checkpoint:written", [1, 2]),
        ("state.json:before_rename", [1, 2]),
        ("checkpoint:before_rename", [1, 2]),
        ("checkpoint:after_rename", [1, 2, 3]),
        ("checkpoint:before_delete", [2, 3]),
    ],
)
def test_a_kill_at_any_point_leaves_only_whole_checkpoints(
    tmp_path: Path, point: str, survivors: list[int]
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(checkpoint(1))
    checkpoints.save(checkpoint(2))
    assert killed_at(point, lambda: checkpoints.save(checkpoint(3)))
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoint_steps(tmp_path) == survivors
    assert_equal(checkpoints.newest(), survivors[-1])
    checkpoints.save(checkpoint(4))
    assert sorted(os.listdir(tmp_path)) == [f"step-{step:08d}" for step in (survivors[-1], 4)]


@pytest.mark.parametrize("point", ["checkpoint:after_rename", "checkpoint:before_delete"])
def test_who_goes_on_ends_what_a_kill_cut_short(tmp_path: Path, point: str) -> None:
    """After the last checkpoint of a run there is no other that would."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(1, best=1))
    assert killed_at(point, lambda: checkpoints.save(checkpoint(2, best=2)))
    newest = checkpoints.newest()
    assert newest is not None
    checkpoints.end_save_of(newest)
    assert sorted(os.listdir(tmp_path)) == ["best", "step-00000002"]
    assert (tmp_path / "best").readlink() == Path("step-00000002")


def test_who_goes_on_from_behind_a_corrupt_one_removes_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(1))
    assert killed_at("checkpoint:after_rename", lambda: checkpoints.save(checkpoint(2)))
    (tmp_path / "step-00000002" / "state.json").write_text("{")
    newest = checkpoints.newest()
    assert newest is not None
    checkpoints.end_save_of(newest)
    assert_equal(checkpoints.newest(), 1)


@pytest.mark.privileged
def test_a_full_disk_is_an_oserror_and_older_checkpoints_stay(small_disk: Path) -> None:
    checkpoints = Checkpoints(small_disk / "checkpoints", keep=2)
    checkpoints.save(checkpoint(1))
    large = checkpoint(2)
    large.weights["large"] = torch.zeros(32 << 20, dtype=torch.uint8)
    with pytest.raises(OSError) as raised:  # noqa: PT011
        checkpoints.save(large)
    assert raised.value.errno == errno.ENOSPC
    assert os.listdir(small_disk / "checkpoints") == ["step-00000001"]
    assert_equal(checkpoints.newest(), 1)


def test_one_of_an_earlier_version_with_checksums_of_files_is_read(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, keep=2).save(checkpoint(5))
    state = json.loads((folder / "state.json").read_text())
    names = ("model.safetensors", "training.safetensors")
    of_files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    state = {key: value for key, value in state.items() if key not in ("seal", "sha256_of")}
    atomic_files.write_json(folder / "state.json", _sealed(state | {"sha256": of_files}))
    assert_equal(load(folder), 5)
    of_files["model.safetensors"] = "0" * 64
    atomic_files.write_json(folder / "state.json", _sealed(state | {"sha256": of_files}))
    with pytest.raises(CorruptError, match=r"model\.safetensors"):
        load(folder)


@pytest.mark.parametrize("change", ["name", "shape"])
def test_bytes_that_are_all_there_under_another_name_or_shape_are_noticed(
    tmp_path: Path, change: str
) -> None:
    folder = Checkpoints(tmp_path, keep=2).save(checkpoint(5))
    tensors = load_file(folder / "training.safetensors")
    moment = tensors.pop("optimizer.0.exp_avg")
    changed = (
        {"optimizer.0.exp_avh": moment} if change == "name" else {"optimizer.0.exp_avg": moment.flatten()}
    )
    save_file(tensors | changed, folder / "training.safetensors")
    with pytest.raises(CorruptError, match=r"training\.safetensors"):
        load(folder)


def test_tensors_are_read_into_memory_of_their_own_once(tmp_path: Path) -> None:
    """Under a limit on data that a second copy of the file would not fit, and that counts a private map."""
    held = 64 << 20
    save_file({"a": torch.ones(held // 4), "b": torch.ones(3, 5)}, tmp_path / "x.safetensors")

    def read_under_limit() -> None:
        status = Path("/proc/self/status").read_text()
        in_use_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:"))
        limit_bytes = in_use_kb * 1024 + held + (24 << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
        found = read_tensors(tmp_path / "x.safetensors")
        assert found["a"].sum() == held // 4
        assert found["b"].shape == (3, 5)

    assert exit_code_of(read_under_limit) == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_what_safetensors_writes_is_read_as_it_was(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    written = {"one": (9 * torch.rand(shape)).to(dtype), "two": torch.arange(3)}
    save_file(written, tmp_path / "x.safetensors", metadata={"of": "a test"})
    found = read_tensors(tmp_path / "x.safetensors")
    assert sorted(found) == ["one", "two"]
    for name, tensor in written.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a": 3}',
        b'{"a": {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4000000000000]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": "1", "data_offsets": [0]}}',
    ],
)
def test_a_file_that_is_none_of_safetensors_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ValueError, match="x"):
        read_tensors(tmp_path / "x")
    (tmp_path / "x").write_bytes((1 << 60).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="x"):
        read_tensors(tmp_path / "x")


@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize(
    "what", [".", "step-00000009", "step-00000009/state.json", "step-00000009/model.safetensors"]
)
def test_one_that_cannot_be_read_stops_the_run_and_nothing_is_removed(
    tmp_path: Path, number: int, what: str
) -> None:
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder, keep=2)
    for step in (3, 6, 9):
        checkpoints.save(checkpoint(step))
    before = sorted(folder.rglob("*"))
    with (
        failing_reads(folder / what, number),
        pytest.raises(atomic_files.Unreadable) as raised,
    ):
        checkpoints.newest()
    assert os.strerror(number) in str(raised.value)
    assert sorted(folder.rglob("*")) == before
    assert_equal(checkpoints.newest(), 9)


def test_files_have_the_modes_that_the_umask_gives(tmp_path: Path) -> None:
    def save() -> None:
        os.umask(0o027)
        Checkpoints(tmp_path / "made", keep=1).save(checkpoint(1))

    assert exit_code_of(save) == 0
    files = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
