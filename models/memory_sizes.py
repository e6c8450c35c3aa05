"""How a step is computed, as far as that decides what it holds, and what a norm saves. No torch."""

from __future__ import annotations

from dataclasses import dataclass

FP32, BF16, INT64 = 4, 2, 8


@dataclass(frozen=True)
class StepSizes:
    """How a step is computed.

    micro_batch: windows at once. precision: fp32, or bf16 for products under autocast. loss_chunk: tokens
    whose logits exist at once. activation_checkpointing: of all blocks, or of the first so many. accumulates:
    a step has several micro-batches. keeps_gradients: they are there from step to step. masks_documents:
    windows come with positions that begin anew. by_source: losses of a mixture are wanted token by token.
    on_gpu: parameters and activations are there, not on the host. members: runs that are one program.
    """

    micro_batch: int
    seq_len: int
    precision: str
    loss_chunk: int
    activation_checkpointing: bool | int = False
    compiled: bool = False
    accumulates: bool = False
    keeps_gradients: bool = False
    masks_documents: bool = False
    by_source: bool = False
    on_gpu: bool = False
    members: int = 1

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.seq_len

    @property
    def product_bytes(self) -> int:
        """Of one number that comes out of a matrix product."""
        return FP32 if self.precision == "fp32" else BF16


def saved_of_norm(width: int, kind: str, step: StepSizes) -> int:
    """Its input and, of RMS on a CPU, the input over its root; and a scalar or two a token."""
    if kind == "none":
        return 0
    if kind == "layer":
        return FP32 * step.tokens * (width + 2)
    copies = 1 if step.on_gpu else 2
    return FP32 * step.tokens * (copies * width + 1)
