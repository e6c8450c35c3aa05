"""Compare the loss of models.lm_loss with ordinary cross-entropy: time and peak memory of training steps.

Models of 32d and 64d with a vocabulary of 50,257, 32 x 128 tokens a step, fp32, 2 threads, AdamW. Each case
is a process, and all take their steps in turns: a ratio is the median over the rounds of a case's time to
that of ordinary cross-entropy. Much of that time is page faults of logits that are mapped again in every
step, so both are also measured with the allocator set to keep its memory (`tuned`).

    python benchmarks/loss.py            # about 5 minutes
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, benchmark, in_turns, ratios, summary
from benchmarks.processes import TUNED, Turn, Turns, allocator_environment, proc_bytes

if TYPE_CHECKING:
    from torch import Tensor

SEQ, VOCAB, THREADS = 128, 50_257, 2
KINDS = {
    "whole": "ordinary cross-entropy on whole logits",
    "face": "models.lm_loss, chunk auto",
    "face_64": "the same, chunk 64",
    "face_256": "the same, chunk 256",
    "face_512": "the same, chunk 512",
    "torch_256": "torch's linear_cross_entropy, chunk 256",
    "torch_auto": "torch's linear_cross_entropy with its automatic chunk; at 64d half a minute a step",
    "floor": "the three matrix products of the head alone, in chunks",
}
CASES = [(kind, False) for kind in ("whole", "face", "floor", "face_64", "face_256", "face_512", "torch_256")]
CASES += [("whole", True), ("face", True)]
"""Kind, and whether the allocator keeps its memory. The first is the reference."""


def loss_of(kind: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The loss of a kind: hidden (batch, seq, d), weight (vocab, d), labels (batch, seq) -> scalar."""
    import torch
    import torch.nn.functional as F

    from models import lm_loss, resolve_loss_chunk

    how, _, asked = kind.partition("_")
    chunk = int(asked) if asked.isdigit() else resolve_loss_chunk("auto", VOCAB, "cpu")

    def whole(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), labels.flatten())

    def face(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return lm_loss(hidden, weight, labels, chunk)

    def torchs(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        fixed = {"batch_chunk_size": chunk, "chunking_method": None} if asked.isdigit() else {}
        how = torch.nn.LinearCrossEntropyOptions(**fixed)
        return F.linear_cross_entropy(hidden.flatten(0, 1), weight, labels.flatten(), options=how)

    def floor(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            logits = torch.empty(chunk, VOCAB)
            grad_hidden, grad_weight = torch.empty(chunk, weight.shape[1]), torch.zeros_like(weight)
            for states in hidden.flatten(0, 1).split(chunk):
                torch.mm(states, weight.T, out=logits)
                torch.mm(logits, weight, out=grad_hidden)
                grad_weight.addmm_(logits.T, states)
        return hidden.sum() + weight[0].sum()

    return {"whole": whole, "face": face, "torch": torchs, "floor": floor}[how]


def child(kind: str, width: int, batch: int) -> None:
    """A process that trains a step in its turn."""
    import torch

    from conf.schema import Arch, Model, Optimizer
    from models import build_model
    from training.optimizers import build_optimizer

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = build_model(Model(d_model=width), Arch(), VOCAB, SEQ)
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    compute, ids, turn = loss_of(kind), torch.randint(VOCAB, (batch, SEQ + 1)), Turn()
    start_bytes = proc_bytes("VmRSS")
    turn.end_step()
    while True:
        states = model.hidden(ids[:, :-1])
        # Cut in two, so that the part of the loss, forward and backward, can be timed.
        hidden = states.detach().requires_grad_()
        before = time.perf_counter()
        loss = compute(hidden, model.output_weight, ids[:, 1:])
        loss.backward()
        loss_s = time.perf_counter() - before
        states.backward(hidden.grad)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        turn.end_step(loss_s=loss_s, start_bytes=start_bytes, loss=loss.item())


def measure(width: int, batch: int, rounds: int, kinds: list[tuple[str, bool]]) -> list[dict[str, Any]]:
    """All cases of a width, a step of each in turn."""
    with ExitStack() as stack:
        steps = {}
        for kind, is_tuned in kinds:
            command = [sys.executable, __file__, "--child", kind, width, batch]
            turns = Turns(command, allocator_environment(is_tuned))
            stack.callback(turns.end)
            steps[f"{kind} {is_tuned}"] = turns.step
        found = in_turns(steps, rounds, warm_up=1)
    rows = []
    reference = next(iter(found.values()))
    least = reference[-1]["peak_bytes"] - reference[-1]["start_bytes"]
    for (kind, is_tuned), steps_taken in zip(kinds, found.values(), strict=True):
        last = steps_taken[-1]
        above = last["peak_bytes"] - last["start_bytes"]
        row = {"model": f"{width}d", "kind": kind, "allocator": "tuned" if is_tuned else "default"}
        for name in ("loss_s", "step_s", "cpu_s"):
            own, other = ([one[name] for one in taken] for taken in (steps_taken, reference))
            row |= {name: summary(own), f"{name[:-2]}_ratio": round(ratios(own, other)["median"], 3)}
        row |= {"peak_mb": round(last["peak_bytes"] / MB), "last_loss": last["loss"]}
        rows.append(row | {"above_start_mb": round(above / MB), "above_start_ratio": round(above / least, 3)})
    return rows


if __name__ == "__main__" and sys.argv[1:2] == ["--child"]:
    child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))


@benchmark(rounds=(4, 1), widths=([32, 64], [32]), batch=(32, 1), cases=(len(CASES), 2))
def measured(chosen: Any) -> Any:
    rows = []
    for number, width in enumerate(chosen.widths):
        kinds = CASES[: chosen.cases] + ([("torch_auto", False)] if number == 0 else [])
        rows += measure(width, chosen.batch, chosen.rounds, kinds)
    setting = {
        "batch": chosen.batch, "seq_len": SEQ, "vocab_size": VOCAB, "threads": THREADS, "dtype": "fp32",
        "rounds": chosen.rounds, "tuned": TUNED, "kinds": KINDS, "load_average": os.getloadavg()[0],
    }  # fmt: skip
    return {"setting": setting, "rows": rows}
