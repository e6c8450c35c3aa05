"""Validation loss over fixed windows: the same tokens at every milestone and in every run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conf import Config
    from data_loading import Data, MixedData, StreamingDataset
    from models import LanguageModel
    from training.device import Device
    from training.distributed.parallel import Parallel


@dataclass(frozen=True)
class Evaluation:
    """loss: nats a token, the mean over `tokens` predicted tokens."""

    loss: float
    tokens: int
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


@dataclass(frozen=True)
class HeldOut:
    """A set to measure on. source: in evals.jsonl. weight: of its loss in the mean of all of a run."""

    source: str
    weight: float
    dataset: StreamingDataset


def held_out(data: Data | MixedData, split: str, config: Config) -> list[HeldOut]:
    """val or test of a run: one set, or of a mixture `SPLIT/NAME` of each source, with its first weight."""
    from data_loading import MixedData, open_held_out

    sets = [open_held_out(part, split, config.dataset, config.training.seq_len) for part in data.parts]
    if not isinstance(data, MixedData):
        return [HeldOut(split, 1.0, sets[0])]
    names = [f"{split}/{name}" for name in data.names]
    return [HeldOut(*each) for each in zip(names, map(float, data.weights), sets, strict=True)]


def mean_of(sets: Sequence[HeldOut], found: Sequence[Evaluation]) -> Evaluation:
    """One loss of all sets, by their weights."""
    loss = sum(one.weight * of_one.loss for one, of_one in zip(sets, found, strict=True))
    return Evaluation(loss, sum(one.tokens for one in found), sum(one.seconds for one in found))


def evaluation_windows(val_windows: int, eval_tokens: int, seq_len: int) -> int:
    """Windows read at each evaluation: those of the first `eval_tokens` of val, or all there are."""
    return min(val_windows, -(-eval_tokens // seq_len))


def evaluate(
    model: LanguageModel,
    dataset: StreamingDataset,
    *,
    windows: int,
    batch_size: int,
    loss_chunk: int,
    device: Device,
    parallel: Parallel | None = None,
) -> Evaluation:
    """Mean loss over the first `windows` windows of `dataset`, in order, without gradients.

    parallel: the same model on several ranks, which take the batches in turn; each gets the loss of all.
    """
    import torch

    from data_loading.spans import IGNORED_LABEL
    from training.distributed.parallel import Parallel
    from training.step import positions_of

    started = time.monotonic()
    parallel = parallel or Parallel(model)
    ranks, loss_of = parallel.ranks, parallel.evaluating()
    total, tokens = torch.zeros((), dtype=torch.float64, device=device.torch_device), 0
    was_training = model.training
    model.eval()
    with torch.no_grad(), device.autocast():
        for first in range(0, windows, batch_size * ranks.size):
            start = first + batch_size * ranks.rank
            counts = start < windows
            if not counts:
                if not parallel.is_sharded:
                    break
                start = 0  # the others need this rank's part of the parameters
            batch = dataset.__getitems__(range(start, min(start + batch_size, windows)))
            input_ids, labels = device.put(batch["input_ids"]), device.put(batch["labels"])
            loss = loss_of(input_ids, labels, positions_of(batch, device), loss_chunk, "sum")
            if counts:
                total += loss.double()
                tokens += int((batch["labels"] != IGNORED_LABEL).sum())
    model.train(was_training)
    ranks.sum_(total)
    tokens = ranks.total(tokens)
    return Evaluation(loss=total.item() / tokens, tokens=tokens, seconds=time.monotonic() - started)
