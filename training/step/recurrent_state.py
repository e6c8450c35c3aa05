"""States that the rows of a run go on with from step to step, where `arch.state_reset` asks for it.

Gradients stay within a window (truncated backpropagation). Row i of a step goes on with the state that row i
of the step before ended with (`dataset.windows=streams`), unless its text does not, or chance resets it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.schema import Arch
from models.options.recurrent_carry import STATES_OF_LAYER, RowMemory

if TYPE_CHECKING:
    import torch

    from training.checkpoint.checkpoints import Checkpoint
    from training.devices.device import Device
    from training.step.train_step import Batch

NAME = "rows.states"
"""Of the tensor in a checkpoint."""


class RowStates:
    """states: fp32 (layers, kinds, rows of a step, width), as after the last step that was taken.

    Which rows are reset is drawn from the seed and the step alone, so a resumed run resets the same; and rows
    are those of a step, however many micro-batches read them.
    """

    def __init__(self, layers: int, rows: int, arch: Arch, width: int, seed: int, device: Device) -> None:
        import torch

        assert arch.state_reset is not None
        shape = (layers, STATES_OF_LAYER[arch.family], rows, width)
        self.states = torch.zeros(shape, device=device.torch_device)
        self._next = torch.zeros_like(self.states)
        self._probability, self._seed, self._device = arch.state_reset, seed, device
        self._row, self._resets = 0, torch.zeros(rows, dtype=torch.bool)

    def begin_step(self, step: int) -> None:
        """Draw which rows are reset in this step, the first being 0."""
        import torch

        digest = hashlib.blake2b(f"state {self._seed} {step}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
        self._resets = torch.rand(len(self._resets), generator=generator) < self._probability
        self._row = 0

    def of_next(self, batch: Batch) -> RowMemory:
        """Of the next micro-batch of the step."""
        rows = slice(self._row, self._row + len(batch["reset"]))
        self._row = rows.stop
        resets = self._device.put(self._resets[rows] | batch["reset"])
        before = self.states[:, :, rows].masked_fill(resets[None, None, :, None], 0.0)
        return RowMemory(before, self._next[:, :, rows])

    def end_step(self) -> None:
        """The step was taken: go on from where its rows ended."""
        self.states, self._next = self._next, self.states

    def tensors(self) -> dict[str, torch.Tensor]:
        """For a checkpoint."""
        return {NAME: self.states}

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; one of a run without states leaves them at 0."""
        found = checkpoint.training.get(NAME)
        if found is not None:
            self.states.copy_(found)


def row_states_of(config: Config, rows: int, device: Device) -> RowStates | None:
    """Those of a run, a step of which has so many rows; None where every window begins with zeros."""
    from conf.seeding import seeds
    from models.options.shape import resolve_shape

    if config.arch.state_reset is None:
        return None
    shape, (_, seed_data) = resolve_shape(config.model, config.arch), seeds(config)
    return RowStates(shape.n_layers, rows, config.arch, shape.d_model, seed_data, device)


def row_state_bytes(config: Config) -> int:
    """Of `RowStates.states`; it has them twice, a checkpoint once."""
    from conf.budget import effective_batch
    from models.options.shape import resolve_shape

    if config.arch.state_reset is None:
        return 0
    shape, rows = resolve_shape(config.model, config.arch), effective_batch(config.training)
    return 4 * shape.n_layers * STATES_OF_LAYER[config.arch.family] * rows * shape.d_model


def states_in_checkpoint(states: RowStates | None) -> dict[str, Any]:
    """Their tensors; none where none are carried."""
    return {} if states is None else states.tensors()
