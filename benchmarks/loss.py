"""The loss face against ordinary cross-entropy: time and peak memory of training steps.

    python benchmarks/loss.py            # about 5 minutes; writes benchmarks/results/loss.json

Models of 32d and 64d with a vocabulary of 50,257, 32 x 128 tokens a step, fp32, 2 threads, AdamW.
Each case is a process of its own, all of them alive at once and taking their steps in turn: a ratio
is the median over the rounds of a case's time to that of ordinary cross-entropy in the same round,
so that other work on the machine, which comes and goes, touches both; `cpu_s` is the processor time
of a step, of all threads, which feels such work least. Much of the time of ordinary
cross-entropy is page faults of logits that are mapped anew in every step, so both are also measured
with the allocator told to keep its memory (`tuned`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary

if TYPE_CHECKING:
    from torch import Tensor

WIDTHS = (32, 64)
BATCH, SEQ, VOCAB, THREADS = 32, 128, 50_257, 2
WARM_UP = 1
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
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "34359738368",
    "MALLOC_TOP_PAD_": "67108864",
}
CASES = [
    ("whole", False),
    ("face", False),
    ("floor", False),
    ("face_64", False),
    ("face_256", False),
    ("face_512", False),
    ("torch_256", False),
    ("whole", True),
    ("face", True),
]
REFERENCE = ("whole", False)


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
        options = torch.nn.LinearCrossEntropyOptions()
        if asked.isdigit():
            options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk, chunking_method=None)
        return F.linear_cross_entropy(hidden.flatten(0, 1), weight, labels.flatten(), options=options)

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


def steps(kind: str, width: int) -> Iterator[dict[str, Any]]:
    """Train a step at a time: seconds, peak memory so far and memory before the first step, in bytes."""
    import torch

    from conf.schema import Arch, Model, Optimizer
    from models import build_model
    from training.optimizers import build_optimizer

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = build_model(Model(d_model=width), Arch(), VOCAB, SEQ)
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    compute = loss_of(kind)
    ids = torch.randint(VOCAB, (BATCH, SEQ + 1))
    at_start = status_bytes("VmRSS")
    while True:
        started, started_cpu = time.perf_counter(), time.process_time()
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
        yield {
            "loss_s": loss_s,
            "step_s": time.perf_counter() - started,
            "cpu_s": time.process_time() - started_cpu,
            "start_bytes": at_start,
            "peak_bytes": status_bytes("VmHWM"),
            "loss": loss.item(),
        }


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


class Case:
    """A process that takes a step when told to."""

    def __init__(self, width: int, kind: str, tuned: bool) -> None:
        self.width, self.kind, self.tuned = width, kind, tuned
        self.found: list[dict[str, Any]] = []
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", kind, str(width)],
            env=environment | (TUNED if tuned else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> dict[str, Any]:
        """Have it take a step and wait for what it measured."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()

    def row(self, reference: Case) -> dict[str, Any]:
        """Its line of the table."""
        last = self.found[-1]
        row: dict[str, Any] = {
            "model": f"{self.width}d",
            "kind": self.kind,
            "allocator": "tuned" if self.tuned else "default",
        }
        for name in ("loss_s", "step_s", "cpu_s"):
            row[name] = summary([step[name] for step in self.found])
            pairs = zip(self.found, reference.found, strict=True)
            ratios = [own[name] / other[name] for own, other in pairs]
            row[f"{name[:-2]}_ratio"] = round(statistics.median(ratios), 3)
        row["peak_mb"] = round(last["peak_bytes"] / 2**20)
        row["above_start_mb"] = round(above_start(last) / 2**20)
        row["above_start_ratio"] = round(above_start(last) / above_start(reference.found[-1]), 3)
        row["last_loss"] = last["loss"]
        return row


def above_start(step: dict[str, Any]) -> int:
    """Bytes of peak resident memory above torch, model and optimizer."""
    return step["peak_bytes"] - step["start_bytes"]


def measure(width: int, rounds: int) -> list[dict[str, Any]]:
    """All cases of a width, a step of each in turn."""
    extra = [("torch_auto", False)] if width == WIDTHS[0] else []
    cases = [Case(width, kind, tuned) for kind, tuned in CASES + extra]
    try:
        for number in range(WARM_UP + rounds):
            for case in cases:
                step = case.step()
                if number >= WARM_UP:
                    case.found.append(step)
    finally:
        for case in cases:
            case.end()
    reference = next(case for case in cases if (case.kind, case.tuned) == REFERENCE)
    return [case.row(reference) for case in cases]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--child", nargs=2, metavar=("KIND", "WIDTH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        taken = steps(options.child[0], int(options.child[1]))
        for _ in sys.stdin:
            print(json.dumps(next(taken)), flush=True)
        return
    setting = {
        "batch": BATCH, "seq_len": SEQ, "vocab_size": VOCAB, "threads": THREADS, "dtype": "fp32",
        "rounds": options.rounds, "tuned": TUNED, "kinds": KINDS,
    }  # fmt: skip
    rows = [row for width in WIDTHS for row in measure(width, options.rounds)]
    save("loss", {"setting": setting | {"load_average": os.getloadavg()[0]}, "rows": rows})


if __name__ == "__main__":
    main()
