"""How long training waits for a checkpoint, and how long the disk takes: 256d with the state of AdamW.

In turn in every round: a copy of all tensors in memory, which is the least that a checkpoint in the
background has to wait for (into memory that is there already, and into new memory); the stall of ours in the
background, and its time until all is on the disk; ours in the foreground; safetensors and torch.save, each
with an fsync of its file, as others write them, without checksums.

    python benchmarks/checkpoints.py [--width 256] [--rounds 5] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
from safetensors.torch import save_file

from benchmarks.environment import save, summary
from conf.schema import Arch, Model
from models import build_model
from training.background import BackgroundCheckpoints
from training.checkpoints import Checkpoint, Checkpoints

GOALS = {"stall_over_copy": 1.3, "foreground_over_safetensors": 1.2}
VOCAB, SEQ_LEN = 50_257, 128


def state_of(width: int) -> Checkpoint:
    """Weights and moments of a model of this width, as a run has them after its first step."""
    model = build_model(Model(d_model=width), Arch(), VOCAB, SEQ_LEN)
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    moments = {
        f"optimizer.{number}.{key}": torch.randn_like(tensor)
        for number, tensor in enumerate(weights.values())
        for key in ("exp_avg", "exp_avg_sq")
    }
    return Checkpoint(weights, moments, {"step": 1, "best": None})


def fsynced(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def rounds_of(state: Checkpoint, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, by round. One before the first is not counted."""
    tensors = {
        f"{kind}.{name}": t for kind in ("weights", "training") for name, t in getattr(state, kind).items()
    }
    kept = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    background = BackgroundCheckpoints(Checkpoints(folder / "background", keep=1), is_on=True)
    foreground = Checkpoints(folder / "foreground", keep=1)
    found: dict[str, list[float]] = {}

    def both_files() -> None:
        save_file(state.weights, folder / "model.safetensors")
        save_file(state.training, folder / "training.safetensors")
        fsynced(folder / "model.safetensors")
        fsynced(folder / "training.safetensors")

    def torch_save() -> None:
        torch.save(tensors, folder / "state.pt")
        fsynced(folder / "state.pt")

    for number in range(rounds + 1):
        state.state["step"] = number + 1
        seconds = {
            "copy in memory": timed(lambda: [kept[name].copy_(tensor) for name, tensor in tensors.items()]),
            "copy into new memory": timed(lambda: [tensor.clone() for tensor in tensors.values()]),
            "ours, in the background: stall": timed(lambda: background.save(state)),
        }
        started = time.perf_counter()
        background.wait()
        seconds["ours, in the background: on the disk after"] = (
            time.perf_counter() - started + seconds["ours, in the background: stall"]
        )
        seconds["ours, in the foreground"] = timed(lambda: foreground.save(state))
        seconds["safetensors and fsync"] = timed(both_files)
        seconds["torch.save and fsync"] = timed(torch_save)
        if number:
            for name, value in seconds.items():
                found.setdefault(name, []).append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    state = state_of(options.width)
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        found = rounds_of(state, folder, options.rounds)
    finally:
        shutil.rmtree(folder)
    tensors = (*state.weights.values(), *state.training.values())

    def ratio(one: str, other: str) -> dict[str, float]:
        return summary([a / b for a, b in zip(found[one], found[other], strict=True)])

    ratios = {
        "stall_over_copy": ratio("ours, in the background: stall", "copy in memory"),
        "foreground_over_safetensors": ratio("ours, in the foreground", "safetensors and fsync"),
        "stall_over_torch_save": ratio("ours, in the background: stall", "torch.save and fsync"),
    }
    save(
        "checkpoints",
        {
            "what": f"{options.width}d with {VOCAB:,} ids and the state of AdamW",
            "bytes": sum(tensor.nbytes for tensor in tensors),
            "seconds": {name: summary(values) for name, values in found.items()},
            "ratios": ratios,
            "goals": GOALS,
            "goals_met": all(ratios[name]["median"] <= goal for name, goal in GOALS.items()),
        },
    )


if __name__ == "__main__":
    main()
