"""Validation loss over fixed windows: the same tokens at every milestone and in every run."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_loading import StreamingDataset
    from models import LanguageModel
    from training.device import Device


@dataclass(frozen=True)
class Evaluation:
    """loss: nats a token, the mean over `tokens` predicted tokens."""

    loss: float
    tokens: int
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


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
) -> Evaluation:
    """Mean loss over the first `windows` windows of `dataset`, in order, without gradients."""
    import torch

    from data_loading.spans import IGNORED_LABEL
    from models import lm_loss
    from training.step import positions_of

    started = time.monotonic()
    total, tokens = torch.zeros((), dtype=torch.float64, device=device.torch_device), 0
    was_training = model.training
    model.eval()
    with torch.no_grad(), device.autocast():
        for start in range(0, windows, batch_size):
            batch = dataset.__getitems__(range(start, min(start + batch_size, windows)))
            input_ids, labels = device.put(batch["input_ids"]), device.put(batch["labels"])
            hidden = model.hidden(input_ids, positions_of(batch, device))
            loss = lm_loss(hidden, model.output_weight, labels, chunk=loss_chunk, reduction="sum")
            total += loss.double()
            tokens += int((batch["labels"] != IGNORED_LABEL).sum())
    model.train(was_training)
    return Evaluation(loss=total.item() / tokens, tokens=tokens, seconds=time.monotonic() - started)
