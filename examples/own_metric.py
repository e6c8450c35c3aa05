"""Metrics of one's own: accuracy of the next token, and the size of an update (docs/own_parts.md).

experiments.py plugins=[own_metric.py] logging.metrics=[token_accuracy,update_ratio]
"""

from dataclasses import dataclass

import torch

from highwater import option, register


@dataclass
class TopK:
    k: int = option(1, "number of most likely tokens among which the label counts as found", at_least=1)


@register.metric("token_accuracy", unit="%", options=TopK)
def token_accuracy(logits, labels, options):
    """A value for each label: logits (windows, seq, vocab), labels (windows, seq) -> (windows, seq)."""
    likely = logits.topk(options.k, dim=-1).indices
    return 100.0 * (likely == labels.unsqueeze(-1)).any(-1)


@register.metric("update_ratio", at="step")
def update_ratio(view, options):
    """Learning rate times the gradient's norm, as a share of the norm of the weights, after each step."""
    norms = torch.stack([one.norm() for one in view.model.parameters()])
    return view.lr * view.grad_norm / norms.norm()
