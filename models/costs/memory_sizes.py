"""Options of a step that decide what it holds, and the bytes that a norm saves. No torch."""

from __future__ import annotations

from dataclasses import dataclass

FP32, BF16, INT64 = 4, 2, 8


@dataclass(frozen=True)
class StepSizes:
    """Options of a step as far as they decide what it holds."""

    micro_batch: int
    """Windows at once."""
    seq_len: int
    precision: str
    """`fp32`, or `bf16` for products under autocast."""
    loss_chunk: int
    """Tokens whose logits exist at once."""
    activation_checkpointing: bool | int = False
    """True: of all blocks; a number: of this many first ones."""
    compiled: bool = False
    accumulates: bool = False
    """A step has several micro-batches."""
    keeps_gradients: bool = False
    """Gradients are kept from step to step."""
    masks_documents: bool = False
    """Windows come with positions that start at 0 in each document."""
    on_gpu: bool = False
    """Parameters and activations are on the GPU, not on the host."""
    members: int = 1
    """Runs that are one program."""

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.seq_len

    @property
    def product_bytes(self) -> int:
        """Bytes of one number that a matrix product returns."""
        return FP32 if self.precision == "fp32" else BF16


def norm_saved_bytes(width: int, kind: str, step: StepSizes) -> int:
    """Bytes of its input and, for RMS on a CPU, the input over its root; and a scalar or two a token."""
    if kind == "none":
        return 0
    if kind == "layer":
        return FP32 * step.tokens * (width + 2)
    copies = 1 if step.on_gpu else 2
    return FP32 * step.tokens * (copies * width + 1)
