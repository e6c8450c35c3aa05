"""StreamLoader: batches of a stream for one rank, as `Loader` gives them for indexed tokens."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.dataset.protocol import unshifted
from data_loading.hub_stream.hub_stream import HubStream
from data_loading.hub_stream.stream_windows import PARTS, WindowStream
from data_loading.loader.base import RankLoader, pinned
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("data_loading")


class StreamLoader(RankLoader[HubStream]):
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    Options are those of `RankLoader`.

    tail: windows at the end of an epoch that make no whole batch. keep: a smaller batch, or the first part of
    one that continues in the next epoch if the loader repeats. drop: they are not read, and a log line says
    how many.

    Each rank has documents of its own, and ends its epoch with them, so that ranks can have different numbers
    of windows.
    """

    tails = ("keep", "drop")

    def __init__(self, dataset: HubStream, batch_size: int, *args: Any, **options: Any) -> None:
        super().__init__(dataset, batch_size, *args, **options)
        self._stream: WindowStream | None = None
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("the number of windows of a stream is known at its end")
        return self.num_batches

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this rank, as plain values; samples counts its windows of this epoch."""
        return {
            "epoch": self._epoch,
            "samples": self._samples,
            "fingerprint": self.dataset.fingerprint,
            "tail": self.tail,
            "rank": self.rank,
            "world_size": self.world_size,
            "stream": self._stream.state() if self._stream is not None else self._state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, exactly; the batch size can differ.

        Raises:
            UserError: the state is of another dataset or other options, or of another division over ranks.
        """
        epoch, samples = self._position_in(state)
        theirs = (state.get("rank"), state.get("world_size"))
        if theirs != (self.rank, self.world_size):
            raise UserError(
                f"the checkpoint is of rank {theirs[0]} of {theirs[1]}, this is rank {self.rank} of "
                f"{self.world_size}: a stream is divided over ranks by files, and resumes exactly with "
                "the same ranks only. Use the same number, or make a token set of it, which any number of "
                "ranks can resume (python -m data_loading materialize)",
                code="stream-rank-changed",
            )
        stream = state.get("stream")
        is_whole = samples == 0 if stream is None else isinstance(stream, dict) and stream.keys() >= PARTS
        if not is_whole:
            raise self._damaged("it has no position of the stream")
        self._resume(epoch, samples)
        self._stream, self._state = None, stream

    def __iter__(self) -> Iterator[Batch]:
        requested = self._requested_epoch()
        if requested is not None:
            self._begin(requested)
        count = 0
        while self.num_batches is None or count < self.num_batches:
            had = self._samples
            windows = self._next_windows()
            if not windows and had and count == 0:
                self._begin(self._epoch + 1)  # the iteration before this one ended with its epoch
                windows = self._next_windows()
            if not windows:
                if self._samples == 0:
                    raise self._too_few(0)
                return
            batch = self._batch(windows)
            yield pinned(batch) if self.pin_memory else batch
            count += 1

    def _next_windows(self) -> list[np.ndarray]:
        """Return the windows of a batch; none if the epoch is over and the loader does not repeat."""
        windows = self._windows(self.batch_size)
        while len(windows) < self.batch_size:
            if self.tail == "drop":
                self._drop(len(windows))
                windows = []
            if not self.repeat:
                break
            self._begin(self._epoch + 1)
            more = self._windows(self.batch_size - len(windows))
            if not more:
                raise self._too_few(0)
            windows += more
        return windows

    def _begin(self, epoch: int) -> None:
        self._epoch, self._samples, self._stream, self._state = epoch, 0, None, None

    def _windows(self, wanted: int) -> list[np.ndarray]:
        """Return the next windows of this epoch: fewer at its end."""
        if self._stream is None:
            self._stream = self._opened()
        found: list[np.ndarray] = []
        while len(found) < wanted and (window := self._stream.next()) is not None:
            found.append(window)
        self._samples += len(found)
        return found

    def _opened(self) -> WindowStream:
        begun, state = time.monotonic(), self._state
        stream = self.dataset.open(self._epoch, self.rank, self.world_size, state)
        self._state = None
        if state is not None:
            log.info(
                "%s: returned to its place after %s windows of epoch %s in %.1f s",
                self.dataset.name, f"{self._samples:,}", self._epoch, time.monotonic() - begun,
            )  # fmt: skip
        return stream

    def _drop(self, windows: int) -> None:
        if windows and windows == self._samples:
            raise self._too_few(windows)
        if windows:
            log.info("%s windows at the end of epoch %s made no batch", f"{windows:,}", self._epoch)

    def _too_few(self, windows: int) -> UserError:
        dataset = self.dataset
        rank = f"{dataset.name} {dataset.split}: rank {self.rank} of {self.world_size}"
        if windows:
            return UserError(
                f"{rank} has {windows:,} windows in an epoch, which make no batch of {self.batch_size:,} "
                "(tail 'drop'). Use a smaller batch, or tail 'keep'",
                code="stream-batch-too-large",
            )
        left = self._stream.left_tokens if self._stream is not None else 0
        return UserError(
            f"{rank} has {left:,} tokens, one window of {dataset.seq_len:,} needs "
            f"{dataset.seq_len + dataset.shift:,}. Set a smaller seq_len, or use fewer ranks",
            code="stream-too-short",
        )

    def _batch(self, windows: list[np.ndarray]) -> Batch:
        import torch

        seq_len, shift = self.dataset.seq_len, self.dataset.shift
        ids = torch.from_numpy(np.stack(windows).astype(np.int64))
        batch = {"input_ids": ids[:, :seq_len], "labels": ids[:, shift : shift + seq_len]}
        if not self.dataset.shift_labels:
            batch = unshifted(batch)
        return {
            name: tensor.contiguous() if self.dataset.contiguous else tensor for name, tensor in batch.items()
        }
