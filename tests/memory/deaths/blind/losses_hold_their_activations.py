"""A list of losses for the plot at the end: each loss refers to what it was computed from."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak", "growth"]
# victim = "main"
# limit_mb = 180
# ///

import time

import numpy as np
from kit import as_a_run

from memory import stage


class Loss:
    """A number with the graph behind it."""

    def __init__(self, value: float, parents: list[np.ndarray]) -> None:
        self.value, self.parents = value, parents


def step(random: np.random.Generator) -> Loss:
    hidden = random.random((256, 512), dtype=np.float32)
    logits = np.tanh(hidden) * 2
    return Loss(float(logits.mean()), [hidden, logits])


losses: list[Loss] = []
random = np.random.default_rng(0)
with as_a_run():
    for number in range(40):
        with stage("train", step=number * 10):
            for _ in range(10):
                losses.append(step(random))  # should have been .value
                time.sleep(0.015)
print("mean", sum(loss.value for loss in losses) / len(losses))
