"""Validation loss over fixed windows: the same tokens at every milestone and in every run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from conf import Config
    from data_loading import Data, MixedData, StreamingDataset
    from models import LanguageModel
    from training.devices.device import Device
    from training.distributed.parallel import Parallel
    from training.own_parts.own_metric import MetricSums


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation."""

    loss: float
    """Nats per token, the mean over `tokens` predicted tokens."""
    tokens: int
    seconds: float
    bytes_per_token: float | None = None
    """Bytes of text per token; None if the tokenizer does not give them."""
    by_position: tuple[dict[str, Any], ...] = ()
    """`PositionLosses.to_json`, if requested."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the user's, by name: means over the labels."""

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of text: comparable across tokenizers, unlike loss and perplexity."""
        return self.loss / math.log(2) / self.bytes_per_token if self.bytes_per_token else None


@dataclass(frozen=True)
class HeldOut:
    """A set to evaluate on."""

    source: str
    """Its name in evals.jsonl."""
    weight: float
    """Weight of its loss in the mean over the sets of a run."""
    dataset: StreamingDataset
    bytes_per_id: np.ndarray | None = None
    """Bytes of text of each id, int64 (vocab_size,); None if unknown."""


def held_out(data: Data | MixedData, split: str, config: Config) -> list[HeldOut]:
    """Return a split of a run: one set, or `SPLIT/NAME` of each source of a mixture, with its first weight.

    Empty if the split has no tokens.
    """
    from data_loading import MixedData, bytes_per_id, open_held_out

    if split not in ("train", *data.splits):
        return []
    names, weights = [split], [1.0]
    if isinstance(data, MixedData):
        names = [f"{split}/{name}" for name in data.names]
        weights = [float(weight) for weight in data.weights]
    return [
        HeldOut(
            name,
            weight,
            open_held_out(part, split, config.dataset, config.training.seq_len),
            bytes_per_id(part.tokenizer) if part.tokenizer is not None else None,
        )
        for name, weight, part in zip(names, weights, data.parts, strict=True)
    ]


def mean_of(sets: Sequence[HeldOut], found: Sequence[Evaluation]) -> Evaluation:
    """Mean over all sets, by their weights."""

    def mean(values: Sequence[float]) -> float:
        return sum(one.weight * value for one, value in zip(sets, values, strict=True))

    lengths = [each.bytes_per_token for each in found if each.bytes_per_token is not None]
    return Evaluation(
        mean([each.loss for each in found]),
        sum(each.tokens for each in found),
        sum(each.seconds for each in found),
        mean(lengths) if len(lengths) == len(found) else None,
        own={name: mean([of_one.own[name] for of_one in found]) for name in found[0].own},
    )


def evaluation_windows(val_windows: int, eval_tokens: int, seq_len: int) -> int:
    """Number of windows of an evaluation: those of the first `eval_tokens` of val, at most all."""
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
    bytes_per_id: np.ndarray | None = None,
    by_position: bool = False,
    metrics: MetricSums | None = None,
) -> Evaluation:
    """Mean loss over the first `windows` windows of `dataset`, in order, without gradients.

    Args:
        loss_chunk: tokens of a chunk of the loss.
        parallel: the same model on several ranks, which take the batches in turn; each gets the loss of all.
        bytes_per_id: see `HeldOut`, for bits per byte.
        by_position: measure losses by position too. The loss is then summed in another order, which changes
            its last bits.
        metrics: sums of the user's metrics, all 0.
    """
    import torch

    from data_loading.dataset.protocol import IGNORED_LABEL
    from training.devices.device_batches import on_device
    from training.distributed.parallel import Parallel
    from training.evaluation.loss_by_position import PositionLosses

    started = time.monotonic()
    parallel = parallel or Parallel(model)
    ranks, loss_of = parallel.ranks, parallel.evaluating()
    table = None if bytes_per_id is None else torch.from_numpy(bytes_per_id)
    total, tokens, text_bytes = torch.zeros((), dtype=torch.float64, device=device.torch_device), 0, 0
    of_positions = PositionLosses(dataset.seq_len, device.torch_device) if by_position else None
    was_training = model.training
    model.eval()
    with torch.no_grad(), device.autocast():
        for first in range(0, windows, batch_size * ranks.size):
            start = first + batch_size * ranks.rank
            counts = start < windows
            if not counts:
                if not parallel.is_sharded:
                    break
                start = 0  # the others need this rank's shard of the parameters
            batch = dataset.__getitems__(range(start, min(start + batch_size, windows)))
            moved = on_device(batch, device)
            input_ids, labels, positions = moved["input_ids"], moved["labels"], moved.get("position_ids")
            of_tokens = None if of_positions is None else torch.empty(labels.shape, device=labels.device)
            loss_of.seen_by = metrics.add if metrics is not None and counts else None
            try:
                loss = loss_of(input_ids, labels, positions, loss_chunk, "sum", of_tokens)
            finally:
                loss_of.seen_by = None
            if counts:
                total += loss.double()
                counted = batch["labels"] != IGNORED_LABEL
                tokens += int(counted.sum())
                if table is not None:
                    text_bytes += int(table[batch["labels"][counted]].sum())
                if of_positions is not None and of_tokens is not None:
                    of_positions.add(of_tokens, labels != IGNORED_LABEL, positions)
    model.train(was_training)
    ranks.sum_(total, *([] if metrics is None else [metrics.sums]))
    if of_positions is not None:
        of_positions.sum_over(ranks)
    tokens, text_bytes = ranks.total(tokens), ranks.total(text_bytes)
    return Evaluation(
        loss=total.item() / tokens,
        tokens=tokens,
        seconds=time.monotonic() - started,
        bytes_per_token=text_bytes / tokens if text_bytes else None,
        by_position=tuple(of_positions.to_json()) if of_positions else (),
        own=metrics.means(tokens) if metrics is not None else {},
    )
