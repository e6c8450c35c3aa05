"""Checkpoints: complete or absent, checksummed; the last K, the best and the milestones are kept.

    checkpoints/step-00000400/model.safetensors      weights by name
                              training.safetensors   optimizer moments, random-number states
                              state.json             step, counters, data position; SHA-256 of all tensors
    checkpoints/best                                 link to the one with the lowest val loss

A checkpoint is built under a temporary name, fsynced and renamed: a folder named step-* is complete,
unless the disk changed it later, which the checksums show.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files

if TYPE_CHECKING:
    import torch

log = logging.getLogger("training")

_WEIGHTS = "model.safetensors"
_TRAINING = "training.safetensors"
_OF_TENSORS = "tensors"
"""Value of `sha256_of`. Checkpoints of earlier versions lack the key; their checksums are of the files."""
_NAME = re.compile(r"^step-(\d{8,})$")


class CorruptError(Exception):
    """Files of the checkpoint do not match its checksums, or cannot be parsed."""


@dataclass(frozen=True)
class Checkpoint:
    """State of a run at a step boundary.

    weights: tensors by parameter name. training: tensors by name (moments, RNG states).
    state: plain values; `step`, and `best`: {"step", "val_loss"} of the best evaluation so far or None.
    """

    weights: dict[str, torch.Tensor]
    training: dict[str, torch.Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints folder of one run.

    The last `keep`, the best, the milestones and the rollback point of a spike guard are kept.
    """

    def __init__(self, folder: Path, keep: int, milestones: Collection[int] = ()) -> None:
        """milestones: steps whose checkpoints are kept for good."""
        self._folder = folder
        self._keep = keep
        self._milestones = milestones

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write the checkpoint, then remove those that are no longer kept.

        Raises:
            OSError: the disk is full or read-only; older checkpoints stay.
        """
        from safetensors.torch import save_file

        step = checkpoint.state["step"]
        self._folder.mkdir(exist_ok=True)
        atomic_files.guard()
        self._remove_leftovers()
        temporary = self._folder / f".step-{step:08d}.{os.uname().nodename}.{os.getpid()}.tmp"
        temporary.mkdir()
        try:
            # Digests are taken in a thread of their own, while the kernel takes the files.
            with _safetensors_errors_as_oserror(temporary), ThreadPoolExecutor(1) as aside:
                files = {_WEIGHTS: _on_host(checkpoint.weights), _TRAINING: _on_host(checkpoint.training)}
                digests = aside.submit(lambda: {name: _digest(tensors) for name, tensors in files.items()})
                for name, tensors in files.items():
                    save_file(tensors, temporary / name)
                atomic_files.point("checkpoint:written")
                for name in files:
                    atomic_files.fsync_file(temporary / name)
            sealed = _sealed({**checkpoint.state, "sha256": digests.result(), "sha256_of": _OF_TENSORS})
            atomic_files.write_json(temporary / "state.json", sealed)
            for name in files:
                same_mode(temporary / name, temporary / "state.json")
            atomic_files.fsync_folder(temporary)
            atomic_files.point("checkpoint:before_rename")
            final = self._path(step)
            atomic_files.guard()
            if final.exists():  # found corrupt on resume, or saved by an attempt that then lost its metrics
                self._remove(final)
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        atomic_files.fsync_folder(self._folder)
        atomic_files.point("checkpoint:after_rename")
        self._keep_what_counts(checkpoint.state)
        return final

    def end_save_of(self, checkpoint: Checkpoint) -> None:
        """Finish a `save` of this checkpoint, the newest, that was killed right after its rename."""
        if checkpoint_steps(self._folder)[-1:] == [checkpoint.state["step"]]:  # and no later one is corrupt
            self._remove_leftovers()
            self._keep_what_counts(checkpoint.state)

    def whole_steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return [step for step in checkpoint_steps(self._folder) if _is_whole(self._path(step))]

    def drop_after(self, step: int) -> None:
        """Remove checkpoints of later steps: a run that resumes from this step makes them again."""
        for later in checkpoint_steps(self._folder):
            if later > step:
                self._remove(self._path(later))

    def newest(self, at_most: int | None = None) -> Checkpoint | None:
        """The newest complete checkpoint; a corrupt one is named in the log and skipped.

        at_most: latest step to consider.

        Raises:
            atomic_files.Unreadable: a file cannot be read, which does not make it corrupt.
        """
        for step in reversed(checkpoint_steps(self._folder)):
            if at_most is not None and step > at_most:
                continue
            try:
                return load(self._path(step))
            except CorruptError as error:
                log.warning(
                    "checkpoint of step %s is corrupt (%s): looking at the one before", f"{step:,}", error
                )
        return None

    def of_step(self, step: int) -> Checkpoint:
        """The checkpoint of this step, which another rank has found complete.

        Raises:
            CorruptError: it is damaged here.
        """
        return load(self._path(step))

    def _path(self, step: int) -> Path:
        return checkpoint_folder(self._folder, step)

    def _keep_what_counts(self, state: dict[str, Any]) -> None:
        """state: of the newest checkpoint."""
        best = state["best"]
        self._link_best(best["step"] if best else None)
        point = (state.get("guard") or {}).get("point")
        self._prune({*self._milestones, *([best["step"]] if best else []), point})

    def _link_best(self, step: int | None) -> None:
        if step is None or not self._path(step).is_dir():
            return
        link = self._folder / ".best.tmp"
        link.unlink(missing_ok=True)
        link.symlink_to(self._path(step).name)
        link.replace(self._folder / "best")

    def _prune(self, kept: Collection[int | None]) -> None:
        steps = checkpoint_steps(self._folder)
        for step in steps[: -self._keep]:
            if step not in kept:
                self._remove(self._path(step))

    def _remove(self, folder: Path) -> None:
        """Rename, then delete: a kill in between leaves no half checkpoint under a checkpoint's name."""
        atomic_files.guard()
        doomed = folder.with_name(f".{folder.name}.removed")
        folder.rename(doomed)
        atomic_files.point("checkpoint:before_delete")
        shutil.rmtree(doomed)

    def _remove_leftovers(self) -> None:
        for path in self._folder.glob(".step-*"):
            shutil.rmtree(path)


def checkpoint_folder(folder: Path, step: int) -> Path:
    """Path of the checkpoint of a step in a checkpoints folder."""
    return folder / f"step-{step:08d}"


def read_state(folder: Path) -> dict[str, Any]:
    """Plain values of a checkpoint, checked against their checksum.

    Raises:
        atomic_files.Unreadable: the file cannot be read.
        FileNotFoundError, NotADirectoryError: the file is absent.
        ValueError: the file is damaged.
    """
    with atomic_files.reading(folder / "state.json"):
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    if _sealed({key: value for key, value in state.items() if key != "seal"}) != state:
        raise ValueError(f"{folder / 'state.json'} does not match its own checksum")
    return state


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint in a checkpoints folder, ascending.

    Raises:
        atomic_files.Unreadable: the folder cannot be read.
    """
    try:
        with atomic_files.reading(folder):
            names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for match in map(_NAME.match, names) if match)


def _is_whole(folder: Path) -> bool:
    try:
        load(folder)
    except CorruptError:
        return False
    return True


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint into CPU memory, checked against its checksums.

    Raises:
        CorruptError: names the file and how it differs.
        atomic_files.Unreadable: a file cannot be read.
    """
    state, (weights, training) = _read(folder, (_WEIGHTS, _TRAINING))
    return Checkpoint(weights, training, state)


def same_mode(path: Path, like: Path) -> None:
    """Give a file the permissions of another one that `open` created in the same folder.

    Libraries that write through a temporary file leave it readable by its owner alone, whatever the umask.
    """
    path.chmod(like.stat().st_mode & 0o777)


def load_weights(folder: Path) -> Checkpoint:
    """Read the weights of a checkpoint alone, checked like `load`.

    Raises:
        CorruptError: the checkpoint is damaged.
    """
    state, (weights,) = _read(folder, (_WEIGHTS,))
    return Checkpoint(weights, {}, state)


def _read(folder: Path, names: tuple[str, ...]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    from training.checkpoint.read_safetensors import read_tensors

    try:
        state = read_state(folder)
        tensors = []
        for name in names:
            with atomic_files.reading(folder / name):
                tensors.append(read_tensors(folder / name))
                is_of_tensors = state.get("sha256_of") == _OF_TENSORS
                found = _digest(tensors[-1]) if is_of_tensors else atomic_files.file_sha256(folder / name)
            if found != state["sha256"][name]:
                raise CorruptError(f"{folder / name} does not match its checksum")
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError) as error:
        raise CorruptError(f"{folder}: {error}") from error
    return state, tensors


def _sealed(state: dict[str, Any]) -> dict[str, Any]:
    """The state with a checksum of itself."""
    text = json.dumps(state, sort_keys=True)
    return {**state, "seal": hashlib.sha256(text.encode()).hexdigest()}


def _on_host(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 (hex) over the name, dtype, shape and bytes of each, in the order of names."""
    import torch

    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


@contextmanager
def _safetensors_errors_as_oserror(path: Path) -> Iterator[None]:
    """safetensors reports a failed write in its own exception; callers know OSError."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        number = int(match[1]) if match else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
