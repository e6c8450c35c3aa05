"""How a model and the settings of its optimizer follow its size, so that they hold at every size. No torch.

With `mup` settings tuned at `arch.base_width` hold at other widths (Yang & Hu et al., arXiv:2203.03466, table
8), with `completep` also at other depths than `arch.base_layers` (Dey et al., arXiv:2505.01618, table 1 with
alpha = 1). At the base both are the standard, but for the rule of first weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conf.schema import Arch
from conf.sizes import by_width
from models.options.shape import Shape

BASE_HEAD_DIM = 16
"""At this width of a head the scores of `mup` are scaled as ordinary ones, by 1 / sqrt(head_dim)."""


@dataclass(frozen=True)
class Scales:
    """Factors on the settings of the optimizer for one parameter."""

    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


STANDARD = Scales()
"""The same settings for all parameters."""


@dataclass(frozen=True)
class Parametrization:
    """What of the model depends on its size beyond the sizes of its matrices.

    attention_scale: of scores; None: 1 / sqrt(head_dim). branch_multiplier: of what a block adds to the
    residual stream. output_multiplier: of the last states before the output matrix. hidden_init: factor on
    arch.init_std for matrices of blocks. hidden, in_block, outside: of the optimizer's settings for those
    matrices, for vectors of blocks, for all else.
    """

    attention_scale: float | None = None
    branch_multiplier: float = 1.0
    output_multiplier: float = 1.0
    hidden_init: float = 1.0
    hidden: Scales = STANDARD
    in_block: Scales = STANDARD
    outside: Scales = STANDARD

    def scales(self, roles: Mapping[str, str]) -> dict[str, Scales]:
        """Of the parameters that are not `STANDARD`. roles: as of `parameter_roles.roles_of`."""
        found = {name: self._of(name, role) for name, role in roles.items()}
        return {name: scales for name, scales in found.items() if scales != STANDARD}

    def _of(self, name: str, role: str) -> Scales:
        if role == "hidden":
            return self.hidden
        return self.in_block if name.startswith("blocks.") else self.outside


def mup(shape: Shape, arch: Arch) -> Parametrization:
    """Table 8 with AdamW; eps follows the gradients, which shrink with the width."""
    width = shape.d_model / arch.base_width
    beside = Scales(eps=1 / width)
    return Parametrization(
        attention_scale=BASE_HEAD_DIM**0.5 / shape.head_dim,
        output_multiplier=1 / width,
        hidden_init=width**-0.5,
        hidden=Scales(lr=1 / width, eps=1 / width),
        in_block=beside,
        outside=beside,
    )


def completep(shape: Shape, arch: Arch) -> Parametrization:
    """`mup`, branches that add 1 / depth, and a decay a step that does not shrink with the width."""
    width = shape.d_model / arch.base_width
    depth = shape.n_layers / (arch.base_layers or by_width(arch.base_width))
    eps = 1 / (width * depth)
    return Parametrization(
        attention_scale=BASE_HEAD_DIM**0.5 / shape.head_dim,
        branch_multiplier=1 / depth,
        output_multiplier=1 / width,
        hidden_init=width**-0.5,
        hidden=Scales(lr=1 / width, weight_decay=width, eps=eps),
        in_block=Scales(eps=eps),
        outside=Scales(eps=1 / width),
    )


PARAMETRIZATIONS: dict[str, Callable[[Shape, Arch], Parametrization]] = {"mup": mup, "completep": completep}


def parametrization(shape: Shape, arch: Arch) -> Parametrization:
    """That of `arch.init`; the standard one where it only says how weights are drawn."""
    rule = PARAMETRIZATIONS.get(arch.init)
    return rule(shape, arch) if rule else Parametrization()
