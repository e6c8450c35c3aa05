"""Model of a run for training: alone, under DDP, or sharded by FSDP2.

DDP keeps the whole model on every rank and averages gradients in the backward pass (Li et al.,
arXiv:2006.15704). FSDP2 (`torch.distributed.fsdp.fully_shard`; Zhao et al., arXiv:2304.11277) keeps a part of
each parameter, gradient and moment on each, and gathers a block's parameters while that block computes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError
from training.distributed.ranks import Ranks

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models import LanguageModel, LossModel

DDP, FSDP = "ddp", "fsdp"


class Parallel:
    """Computes a loss like `models.LossModel`. is_sharded: no rank has whole parameters."""

    def __init__(
        self,
        model: LanguageModel,
        ranks: Ranks | None = None,
        kind: str = DDP,
        *,
        gathers_bf16: bool = False,
        loss: LossModel | None = None,
    ) -> None:
        """Wrap a model on its device. With kind `fsdp` its parameters are sharded in place: build the
        optimizer afterwards.

        Args:
            gathers_bf16: FSDP2 sends the matrices of blocks in bf16, as autocast computes with them.
            loss: of the same model; None: the one of a language model.

        Raises:
            UserError: the backend cannot shard.
        """
        from models import LossModel

        self.model, self.ranks = model, ranks or Ranks()
        self.is_sharded = kind == FSDP and not self.ranks.is_alone
        self._loss: nn.Module = LossModel(model) if loss is None else loss
        self._is_ddp = not self.ranks.is_alone and not self.is_sharded
        if self.is_sharded:
            _shard(self._loss, model, self.ranks.size, gathers_bf16=gathers_bf16)
        elif self._is_ddp:
            from torch.nn.parallel import DistributedDataParallel

            # Buffers are tables of positions, the same everywhere. Its name before torch 2.13.
            name = "forward_sync_buffers"
            name = name if name in signature(DistributedDataParallel).parameters else "broadcast_buffers"
            options: dict[str, Any] = {name: False}
            self._loss = DistributedDataParallel(self._loss, gradient_as_bucket_view=True, **options)

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        found: Tensor = self._loss(*arguments, **options)
        return found

    def own(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(loss to minimize, loss to record) of a batch, by the user's step."""
        found: tuple[Tensor, Tensor] = self._loss(batch=batch)
        return found

    def evaluating(self) -> LossModel:
        """Module that computes the loss without gradients, without DDP."""
        return self._loss.module if self._is_ddp else self._loss  # type: ignore[return-value]

    def backward_of(self, micro_step: int, accumulation: int) -> AbstractContextManager[object]:
        """Context for forward and backward of a micro-batch: DDP sends its gradients with the last one.

        FSDP sends them with each, since it does not keep whole gradients.
        """
        if self._is_ddp and micro_step < accumulation - 1:
            return self._loss.no_sync()  # type: ignore[operator]
        return nullcontext()


def _shard(loss: nn.Module, model: LanguageModel, ranks: int, *, gathers_bf16: bool) -> None:
    import warnings

    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from models.layers.basic import ExpertLinear, Linear

    kind = next(model.parameters()).device.type
    # A product with a bias is a view, which no block writes to in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    # Gradients come back in bf16, as from autocast, and are summed over the ranks in fp32.
    bf16 = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    try:
        mesh = init_device_mesh(kind, (ranks,))
        for block in model.blocks:
            # Gains of norms stay in fp32, in the group of the whole model. So do all weights of an LSTM: its
            # kernel reads the matrices without calling these modules.
            matrices = [module for module in block.modules() if type(module) in (Linear, ExpertLinear)]
            if gathers_bf16 and matrices:
                fully_shard(matrices, mesh=mesh, mp_policy=bf16)
            else:
                fully_shard(block, mesh=mesh)
        # Embedding, last norm and head: gathered from the forward pass on to the end of the backward pass.
        fully_shard(loss, mesh=mesh)
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"training.parallel=fsdp: torch {torch.__version__} cannot shard on {kind} with the backend at "
            f"hand ({error}). Use training.parallel=ddp"
        ) from error


def whole(tensor: Tensor, *, keep: bool = True) -> Tensor:
    """Gather a tensor. A sharded one is copied to the host; all ranks have to call this.

    keep: False if this rank does not need it.
    """
    gather = getattr(tensor, "full_tensor", None)
    if gather is None:
        return tensor
    full: Tensor = gather()
    return full.cpu() if keep else full.new_empty(0)


def like(full: Tensor, sharded: Tensor) -> Tensor:
    """This rank's part of a tensor that every rank has whole, sharded like another one."""
    if not hasattr(sharded, "full_tensor"):
        return full
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(sharded, DTensor)
    on_device = full.to(sharded.device)
    return distribute_tensor(on_device, sharded.device_mesh, sharded.placements, src_data_rank=None)
