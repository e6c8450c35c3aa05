"""Losses by the number of tokens of context, which show the gain of a longer window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from training.distributed.ranks import Ranks


class PositionLosses:
    """Sums of losses in buckets of positions, each twice as wide as the one before: 0, 1, 2-3, 4-7, ...

    A position is the number of earlier tokens in the window, or in the document if documents do not attend to
    each other.
    """

    def __init__(self, seq_len: int, device: torch.device) -> None:
        import torch

        buckets = [position.bit_length() for position in range(seq_len)]
        self._of_position = torch.tensor(buckets, device=device)
        self._seq_len = seq_len
        self._sums = torch.zeros(2, buckets[-1] + 1, dtype=torch.float64, device=device)

    def add(
        self, losses: torch.Tensor, counted: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> None:
        """Add losses of a batch.

        Args:
            losses: fp32 (batch, seq_len), nats.
            counted: bool (batch, seq_len).
            position_ids: int64 (batch, seq_len), if positions restart with each document.
        """
        import torch

        buckets = (
            self._of_position.expand(losses.shape)
            if position_ids is None
            else self._of_position[position_ids.to(losses.device)]
        )
        rows = torch.stack([losses.double().flatten(), counted.to(losses.device).double().flatten()])
        # A product: index_add on a GPU sums in varying order.
        self._sums += rows @ torch.nn.functional.one_hot(buckets.flatten(), self._sums.shape[1]).double()

    def sum_over(self, ranks: Ranks) -> None:
        """Sum over all ranks."""
        ranks.sum_(self._sums)

    def to_json(self) -> list[dict[str, Any]]:
        """`first` and `last` position of each bucket that has tokens, `tokens`, and their mean `loss`."""
        found = []
        for bucket, (losses, tokens) in enumerate(self._sums.T.tolist()):
            if tokens:
                first, last = 1 << bucket >> 1, min((1 << bucket) - 1, self._seq_len - 1)
                found.append({"first": first, "last": last, "tokens": int(tokens), "loss": losses / tokens})
        return found
