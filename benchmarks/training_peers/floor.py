"""No training: the three fp32 products of the head alone, in memory that is kept, the fastest of some ways.

Logits of all tokens, gradient of the states, gradient of the matrix: so many tokens at once that it is
fastest here; what no implementation can do without, where it computes in fp32 with torch's products.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns

CHUNKS = (64, 128, 256, 512, 4096)


def products(job: Job, chunk: int) -> Callable[[], None]:
    """One pass over all tokens of a step."""
    import torch

    tokens = job.batch * job.seq_len
    hidden, weight = torch.randn(tokens, job.width), torch.randn(job.vocabulary, job.width)
    logits = torch.empty(chunk, job.vocabulary)
    grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)

    def one_pass() -> None:
        grad_weight.zero_()
        for start in range(0, tokens, chunk):
            states = hidden[start : start + chunk]
            torch.mm(states, weight.T, out=logits)
            torch.mm(logits, weight, out=grad_hidden[start : start + chunk])
            grad_weight.addmm_(logits.T, states)

    return one_pass


def seconds(one_pass: Callable[[], None]) -> float:
    """The best of a few."""
    found = []
    for _ in range(4):
        started = time.perf_counter()
        one_pass()
        found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    job = Job.of_command_line()
    turns = Turns(job.threads)
    import torch

    with torch.no_grad():
        chunk = min(CHUNKS, key=lambda chunk: seconds(products(job, chunk)))
        one_pass = products(job, chunk)
        while True:
            one_pass()
            turns.end_step(chunk=chunk)


if __name__ == "__main__":
    main()
