"""An optimizer of the user's: a function of parameter groups.

Contract: `FUNCTION(groups, optimizer, options)` returns a torch.optim.Optimizer over `groups`, a list of
dicts with `params`, `weight_decay`, `eps` and `lr_factor`. `optimizer` has the keys of the config group.
Training sets `group["lr"]` before each step and calls `step()`; state is saved and restored by `state_dict`.
"""

from __future__ import annotations

import torch
from torch import nn

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.load import own_part
from experiment_utils.errors import Problem, UserError
from training.optimizers import build_optimizer
from training.optimizers.groups import parameter_groups


def build_run_optimizer(model: nn.Module, config: Config, device_type: str) -> torch.optim.Optimizer:
    """Build the optimizer of a configuration: one of ours, or of the user's.

    Args:
        model: on its device already.
        device_type: of its parameters, as `torch.device(...).type` names it.

    Raises:
        UserError: the user's function fails, or returns no optimizer over all groups; names FILE:LINE.
    """
    own = own_part(config, "optimizer")
    if own is None:
        return build_optimizer(model, config.optimizer, device_type)
    part, registered, options = own
    groups = parameter_groups(model, config.optimizer)
    given = {id(one) for group in groups for one in group["params"]}
    found = called(part, registered.code, groups, config.optimizer, options)
    if not isinstance(found, torch.optim.Optimizer):
        what = f"optimizer {part.name} returned {type(found).__name__}; expected a torch.optim.Optimizer"
        raise UserError(Problem(part.place, what, "no-optimizer"))
    held = {id(one) for group in found.param_groups for one in group["params"]}
    if held != given or any("lr_factor" not in group for group in found.param_groups):
        what = f"optimizer {part.name} does not hold all groups that it was given: pass them on as they are"
        raise UserError(Problem(part.place, what, "optimizer-groups"))
    return found
