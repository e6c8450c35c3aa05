"""Checkpoints written while training continues: a step waits for a copy in memory, never for the disk.

The tensors of the copy are kept from one checkpoint to the next, since memory that is new to a process costs
several times the copy itself. One checkpoint is written at a time: the next one waits for it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from training.checkpoint.checkpoints import Checkpoint, Checkpoints

if TYPE_CHECKING:
    from types import TracebackType

    import torch


class BackgroundCheckpoints:
    """Saves checkpoints in a thread. As a context manager it ends when all are on the disk.

    is_on: if False, each is written before `save` returns, and nothing is copied. longest_s: slowest write.
    """

    def __init__(self, checkpoints: Checkpoints, *, is_on: bool) -> None:
        self.is_on = is_on
        self.longest_s = 0.0
        self._checkpoints = checkpoints
        self._staged: dict[str, torch.Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, checkpoint: Checkpoint, *, is_own: bool = False) -> None:
        """Save the state of this moment. is_own: the tensors belong to the checkpoint alone; none is copied.

        Raises:
            OSError: this one cannot be written if `is_on` is False, otherwise the one before.
        """
        if not self.is_on:
            self._checkpoints.save(checkpoint)
            return
        self.wait()
        taken = checkpoint if is_own else self._copied(checkpoint)
        self._thread = threading.Thread(target=self._write, args=(taken,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk.

        Raises:
            OSError: it could not be written; older ones stay.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, checkpoint: Checkpoint) -> None:
        started = time.monotonic()
        try:
            self._checkpoints.save(checkpoint)
        except BaseException as error:  # raised in the thread that trains
            self._error = error
        self.longest_s = max(self.longest_s, time.monotonic() - started)

    def _copied(self, checkpoint: Checkpoint) -> Checkpoint:
        weights = {name: self._copy(f"w.{name}", tensor) for name, tensor in checkpoint.weights.items()}
        training = {name: self._copy(f"t.{name}", tensor) for name, tensor in checkpoint.training.items()}
        on_gpu = [tensor.device for tensor in checkpoint.weights.values() if tensor.is_cuda]
        if on_gpu:
            import torch

            torch.cuda.synchronize(on_gpu[0])
        return Checkpoint(weights, training, checkpoint.state)

    def _copy(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        staged = self._staged.get(name)
        if staged is None or staged.shape != tensor.shape or staged.dtype != tensor.dtype:
            staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._staged[name] = staged
        return staged.copy_(tensor, non_blocking=True)

    def __enter__(self) -> BackgroundCheckpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the OSError of `wait` if nothing else was raised."""
        try:
            self.wait()
        except BaseException:
            if error is None:
                raise
