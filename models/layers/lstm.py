"""Blocks of the LSTM family: one layer each, through torch's own kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conf.schema import Arch
from models.layers.basic import Linear
from models.layers.blocks import Residual, Result, norm_of
from models.layers.dropout import dropped
from models.layers.forward_context import ForwardPass
from models.options.parametrization import Parametrization
from models.options.shape import Shape

GATES = 4
"""Input gate, forget gate, candidate and output gate, in this order, as torch.nn.LSTM has them."""


BF16_CUDNN = 91_300
"""First version of cuDNN whose LSTM computes in bf16: 9.13 (ATen/native/RNN.cpp, use_cudnn). With older ones
(in builds of torch for CUDA 12.6) torch launches several kernels a position."""


class Gates(Linear):
    """Into the four gates, (..., d_model) -> (..., 4 d_model).

    forget_bias: what the biases of the forget gate begin with, so that a state is kept for a while from the
    first step on (Jozefowicz et al. 2015).
    """

    def __init__(self, d_model: int, *, bias: bool, forget_bias: float = 0.0) -> None:
        super().__init__(d_model, GATES * d_model, bias=bias, parts=(d_model,) * GATES)
        self.forget_bias = forget_bias

    def begin_bias(self) -> None:
        super().begin_bias()
        if self.forget_bias:
            self.bias.chunk(GATES)[1].fill_(self.forget_bias)


class Lstm(nn.Module):
    """One layer of torch.nn.LSTM (Hochreiter & Schmidhuber 1997, with forget gates): its equations, its
    parameters and its kernels.

    recurrent_dropout: of the weights of the recurrence, drawn once a forward pass (weight-drop, Merity et
    al., arXiv:1708.02182).
    """

    def __init__(self, shape: Shape, arch: Arch) -> None:
        super().__init__()
        has_bias = arch.bias in ("linear", "all")
        self.input = Gates(shape.d_model, bias=has_bias, forget_bias=arch.lstm_forget_bias)
        self.hidden = Gates(shape.d_model, bias=has_bias)
        self.recurrent_dropout = arch.dropout_recurrent

    def forward(self, x: Tensor, going: ForwardPass) -> Tensor:
        """(batch, seq, d_model) -> the outputs of all positions, the same shape."""
        recurrent = F.dropout(self.hidden.weight, self.recurrent_dropout, self.training)
        biases = [self.input.bias, self.hidden.bias]
        if self.input.bias is None:  # given none, the kernel keeps copies of the weights
            biases = [x.new_zeros(len(recurrent), dtype=recurrent.dtype)] * 2
        zeros = x.new_zeros(1, x.shape[0], x.shape[2])
        first = (zeros, zeros) if going.before is None else (going.before[:1], going.before[1:])
        dtype = kernel_dtype(x)
        with torch.autocast(x.device.type, enabled=False):
            outputs, *last = torch.lstm(
                x.to(dtype),
                tuple(state.to(dtype) for state in first),
                [tensor.to(dtype) for tensor in (self.input.weight, recurrent, *biases)],
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=True,
            )
        if going.behind is not None:
            going.behind.copy_(torch.cat(last).detach())
        return outputs


def kernel_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that a layer computes in: autocast's, or fp32 where the kernel does not know it.

    Autocast of CUDA runs an LSTM in fp16 whatever its dtype (ATen/cudnn/AutocastRNN.cpp), so it is left out.
    """
    device = x.device.type
    if device == "cpu":
        return torch.float32
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    has_kernel = dtype != torch.bfloat16 or (torch.backends.cudnn.version() or 0) >= BF16_CUDNN
    return dtype if has_kernel else torch.float32


class Alone(nn.Module):
    """`dropout(branch)`: what a layer gives takes the place of what it was given, as in torch.nn.LSTM."""

    def __init__(self, dropout: float, *, locked: bool) -> None:
        super().__init__()
        self.dropout, self.locked = dropout, locked

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return dropped(branch, self.dropout, self.training, locked=self.locked)


class PreNormLstm(nn.Module):
    """`x + lstm(norm(x))`, or without the sum."""

    def __init__(self, shape: Shape, arch: Arch, how: Parametrization) -> None:
        super().__init__()
        self.norm = norm_of(shape, arch)
        self.lstm = Lstm(shape, arch)
        locked = arch.dropout_locked
        self.residual: nn.Module = (
            Residual(arch.dropout_residual, how.branch_multiplier, locked=locked)
            if arch.lstm_residual
            else Alone(arch.dropout_residual, locked=locked)
        )

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        return self.residual(x, self.lstm(self.norm(x), going)), None


class PostNormLstm(PreNormLstm):
    """`norm(x + lstm(x))`, or without the sum."""

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        return self.norm(self.residual(x, self.lstm(x, going))), None


LSTM_BLOCKS: dict[str, type[PreNormLstm]] = {"pre": PreNormLstm, "post": PostNormLstm}


def lstm_block(shape: Shape, arch: Arch, how: Parametrization) -> PreNormLstm:
    """One block of the configuration."""
    return LSTM_BLOCKS[arch.norm_position](shape, arch, how)
