"""A callback of one's own: a running mean of the loss, kept through a resume, written at each evaluation.

experiments.py plugins=[own_callback.py] training.callbacks=[loss_mean] own.loss_mean.decay=0.9
"""

import json
from dataclasses import dataclass

import torch

from highwater import option, register


@dataclass
class Options:
    decay: float = option(0.98, "share of the mean that a step keeps", at_least=0, below=1)


@register.callback("loss_mean", options=Options)
class LossMean:
    def __init__(self, options):
        self.decay, self.steps, self.mean = options.decay, 0, torch.zeros(())

    def on_step(self, view):
        """Tensors stay on the device: reading one would make a GPU wait at each step."""
        self.mean = self.decay * self.mean.to(view.loss.device) + (1 - self.decay) * view.loss
        self.steps += 1

    def on_eval(self, view):
        """Write a line to RUN/own/loss_mean/means.jsonl."""
        unbiased = self.mean.item() / (1 - self.decay**self.steps)
        row = {"step": view.step, "loss_mean": unbiased, "val_loss": view.val_loss}
        with open(view.folder / "means.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")

    def state_dict(self):
        return {"steps": self.steps, "mean": self.mean}

    def load_state_dict(self, state):
        self.steps, self.mean = state["steps"], state["mean"]
