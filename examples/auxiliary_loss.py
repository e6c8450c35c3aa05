"""A step of one's own: the loss of the next token, and an auxiliary term that keeps logits small (z-loss).

experiments.py plugins=[auxiliary_loss.py] training.step=with_auxiliary own.with_auxiliary.weight=1e-3
"""

from dataclasses import dataclass

import torch.nn.functional as F

from highwater import option, register


@dataclass
class Options:
    weight: float = option(1e-4, "factor of the auxiliary term", at_least=0)


@register.step("with_auxiliary", options=Options)
def with_auxiliary(model, batch, options):
    """The loss of a micro-batch, and the part of it that metrics.csv records as train_loss."""
    labels = batch["labels"]  # int64 (batch, seq); -100 does not count
    logits = model(batch["input_ids"]).float()  # (batch, seq, vocab)
    lm_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    auxiliary = logits.logsumexp(-1)[labels != -100].square().mean()
    return lm_loss + options.weight * auxiliary, {"lm_loss": lm_loss}
