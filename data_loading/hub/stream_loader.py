"""Batches of a stream for one rank: what `Loader` is for tokens whose number is known."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.dataset.protocol import unshifted
from data_loading.hub.stream import HubStream
from data_loading.hub.stream_windows import PARTS, WindowStream
from data_loading.loader.base import RankLoader, pinned
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("data_loading")


class StreamLoader(RankLoader[HubStream]):
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    repeat=False: an iteration ends with the epoch, the next one is the next epoch. repeat=True: it never
    ends. num_batches: it ends after so many. tail: what becomes of the windows at the end of an epoch that
    make no whole batch: keep: a smaller batch, or the first of one that goes on in the next epoch where the
    loader repeats; drop: a line says how many. pin_memory: batches lie in page-locked memory, for a GPU.

    Each rank has documents of its own, and ends its epoch with them: ranks may have different numbers of
    windows.
    """

    tails = ("keep", "drop")

    def __init__(self, dataset: HubStream, batch_size: int, *args: Any, **options: Any) -> None:
        super().__init__(dataset, batch_size, *args, **options)
        self._stream: WindowStream | None = None
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("how many windows a stream has is known at its end")
        return self.num_batches

    def state_dict(self) -> dict[str, Any]:
        """Where this rank stands, as plain values; samples counts its windows of this epoch."""
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
        """Go on from there, exactly; the batch size may be another one.

        Raises:
            UserError: the state is of another dataset or other options, or of another division over ranks.
        """
        epoch, samples = self._position_in(state)
        theirs = (state.get("rank"), state.get("world_size"))
        if theirs != (self.rank, self.world_size):
            raise UserError(
                f"the checkpoint is of rank {theirs[0]} of {theirs[1]}, this is rank {self.rank} of "
                f"{self.world_size}: a stream is divided over ranks by files, and goes on exactly with "
                "the same ranks only. Take as many as before, or make a token set of it, which any number of "
                "ranks can go on with (python -m data_loading materialize)",
                code="stream-rank-changed",
            )
        stream = state.get("stream")
        is_whole = samples == 0 if stream is None else isinstance(stream, dict) and stream.keys() >= PARTS
        if not is_whole:
            raise self._damaged("it does not say where the stream stands")
        self._resume(epoch, samples)
        self._stream, self._state = None, stream

    def __iter__(self) -> Iterator[Batch]:
        asked = self._requested_epoch()
        if asked is not None:
            self._begin(asked)
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
        """Those of a batch; none where an epoch is over and the loader does not repeat."""
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
        """The next windows of this epoch: fewer at its end."""
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
                "%s: found its place after %s windows of epoch %s again in %.1f s",
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
        told = f"{dataset.name} {dataset.split}: rank {self.rank} of {self.world_size} has "
        if windows:
            told += (
                f"{windows:,} windows in an epoch, which make no batch of {self.batch_size:,} (tail 'drop')"
            )
            return UserError(f"{told}. Take a smaller batch, or tail 'keep'", code="stream-batch-too-large")
        left = self._stream.left_tokens if self._stream is not None else 0
        return UserError(
            f"{told}{left:,} tokens, one window of {dataset.seq_len:,} needs "
            f"{dataset.seq_len + dataset.shift:,}. Set a smaller seq_len, or take fewer ranks",
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
