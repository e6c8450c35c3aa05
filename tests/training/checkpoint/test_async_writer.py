"""Checkpoints in the background: the state of the moment, one at a time, errors told, nothing left behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tiny_run import copy_of, make_run, outcome, run_here, tiny_config

from experiment_utils import atomic_files
from tests.golden_text import Golden
from tests.training.checkpoint.test_checkpoints import assert_equal, checkpoint
from training.checkpoint.async_writer import BackgroundCheckpoints
from training.checkpoint.checkpoints import Checkpoint, Checkpoints

pytestmark = pytest.mark.usefixtures("quick_start")


class Held(Checkpoints):
    """Does not begin to write before it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, keep=5)
        self.may = threading.Event()
        self.begun: list[int] = []

    def save(self, checkpoint: Checkpoint) -> Path:
        self.begun.append(checkpoint.state["step"])
        assert self.may.wait(60)
        return super().save(checkpoint)


def test_what_is_saved_is_the_state_of_the_moment(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with BackgroundCheckpoints(held, is_on=True) as saving:
        state = checkpoint(5)
        saving.save(state)
        for tensor in (*state.weights.values(), *state.training.values()):
            tensor.zero_()  # as the next step does
        held.may.set()
    assert_equal(held.newest(), 5)


def test_one_is_under_way_and_the_next_waits_for_it(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with BackgroundCheckpoints(held, is_on=True) as saving:
        saving.save(checkpoint(5))
        opener = threading.Timer(0.2, held.may.set)
        opener.start()
        saving.save(checkpoint(6))
        assert held.begun[0] == 5
    assert held.begun == [5, 6]
    assert_equal(held.newest(), 6)


def test_the_copy_is_made_into_the_same_memory(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Noted(Checkpoints):
        def save(self, checkpoint: Checkpoint) -> Path:
            seen.append([tensor.data_ptr() for tensor in checkpoint.weights.values()])
            return super().save(checkpoint)

    with BackgroundCheckpoints(Noted(tmp_path, keep=5), is_on=True) as saving:
        for step in (5, 6, 7):
            saving.save(checkpoint(step))
        own = checkpoint(8)
        saving.save(own, is_own=True)
    assert seen[0] == seen[1] == seen[2]
    assert seen[3] == [tensor.data_ptr() for tensor in own.weights.values()]


def test_an_error_is_told_by_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    file.write_text("in the way")
    saving = BackgroundCheckpoints(Checkpoints(file, keep=2), is_on=True)
    saving.save(checkpoint(5))
    with pytest.raises(FileExistsError):
        saving.save(checkpoint(6))
    saving.wait()  # told once


def test_an_error_is_told_at_the_end_but_not_in_place_of_another(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    file.write_text("in the way")
    into_it = Checkpoints(file, keep=2)
    with pytest.raises(FileExistsError), BackgroundCheckpoints(into_it, is_on=True) as saving:
        saving.save(checkpoint(5))
    with pytest.raises(ZeroDivisionError), BackgroundCheckpoints(into_it, is_on=True) as saving:
        saving.save(checkpoint(5))
        raise ZeroDivisionError


def test_switched_off_it_is_there_at_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    saving = BackgroundCheckpoints(checkpoints, is_on=False)
    saving.save(checkpoint(5))
    assert_equal(checkpoints.newest(), 5)


def test_a_run_leaves_the_same_behind_either_way(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 0
    config.training.checkpoint_writing = "foreground"
    other = copy_of(config, tmp_path / "other")
    assert run_here(other, "--quiet").returncode == 0
    assert outcome(folder) == outcome(other)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    import errno

    from training.attempt.run_files import read_status

    folder = make_run(tiny_config(tmp_path))
    count = 0

    def full(name: str) -> None:
        nonlocal count
        if name == "checkpoint:written":
            count += 1
            if count == 3:
                raise OSError(errno.ENOSPC, "No space left on device", "model.safetensors")

    monkeypatch.setattr(atomic_files, "on_point", full)
    assert run_here(folder, "--quiet").returncode == 2
    status = read_status(folder)
    assert status["state"] == "failed"
    golden.text(status["reason"], numbers=False)
    monkeypatch.setattr(atomic_files, "on_point", None)
    assert run_here(folder, "--quiet").returncode == 0
    undisturbed = copy_of(tiny_config(tmp_path), tmp_path / "other")
    assert run_here(undisturbed, "--quiet").returncode == 0
    assert outcome(folder) == outcome(undisturbed)


def test_a_stop_waits_for_the_disk(tmp_path: Path) -> None:
    """That it goes on from there: tests/test_core.py."""
    held = Held(tmp_path)
    held.may.set()
    with pytest.raises(KeyboardInterrupt), BackgroundCheckpoints(held, is_on=True) as saving:
        saving.save(checkpoint(9))
        raise KeyboardInterrupt
    assert_equal(held.newest(), 9)
