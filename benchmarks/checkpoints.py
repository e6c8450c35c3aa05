"""Measure how long training waits for a checkpoint and how long the disk takes: 256d, AdamW.

In turns: a copy of all tensors in memory, which is the least that a checkpoint in the background has to
wait for (into memory that is there already, and into new memory); the stall of ours in the background, and
its time until all is on the disk; ours in the foreground; safetensors and torch.save, each with an fsync of
its file, as others write them, without checksums.

    python benchmarks/checkpoints.py [--folder DIR]     # a folder on the disk to be measured
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from safetensors.torch import save_file

from benchmarks.harness import benchmark, in_turns, ratios, summaries
from conf.schema import Arch, Model
from models import build_model
from training.checkpoint.async_writer import BackgroundCheckpoints
from training.checkpoint.checkpoints import Checkpoint, Checkpoints

GOALS = {"stall_over_copy": 1.3, "foreground_over_safetensors": 1.2}
VOCAB, SEQ_LEN = 50_257, 128
STALL, ON_DISK = "ours, in the background: stall", "ours, in the background: on the disk after"


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


def cases_of(state: Checkpoint, folder: Path) -> dict[str, Callable[[], Any]]:
    """Ways to keep a state, by name."""
    parts = {"weights": state.weights, "training": state.training}
    tensors = {f"{part}.{name}": tensor for part, of in parts.items() for name, tensor in of.items()}
    kept = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    background = BackgroundCheckpoints(Checkpoints(folder / "background", keep=1), is_on=True)
    foreground = Checkpoints(folder / "foreground", keep=1)

    def ours(checkpoints: BackgroundCheckpoints | Checkpoints) -> None:
        state.state["step"] += 1
        checkpoints.save(state)

    def both_files() -> None:
        for part, of in parts.items():
            save_file(of, folder / f"{part}.safetensors")
            fsync(folder / f"{part}.safetensors")

    def torch_save() -> None:
        torch.save(tensors, folder / "state.pt")
        fsync(folder / "state.pt")

    def in_background() -> list[float]:
        began = time.perf_counter()
        ours(background)
        stall = time.perf_counter() - began
        background.wait()
        return [stall, time.perf_counter() - began]

    return {
        "copy in memory": lambda: [kept[name].copy_(tensor) for name, tensor in tensors.items()],
        "copy into new memory": lambda: [tensor.clone() for tensor in tensors.values()],
        STALL: in_background,
        "ours, in the foreground": lambda: ours(foreground),
        "safetensors and fsync": both_files,
        "torch.save and fsync": torch_save,
    }


def fsync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def timed(action: Callable[[], Any]) -> list[float]:
    """Seconds of an action; the action's own, where it returns them."""
    began = time.perf_counter()
    own = action()
    seconds = time.perf_counter() - began
    return own if isinstance(own, list) and isinstance(own[0], float) else [seconds]


@benchmark(rounds=(5, 1), width=(256, 32), folder=Path)
def measured(chosen: Any) -> Any:
    state = state_of(chosen.width)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        cases = cases_of(state, Path(name))
        taken = in_turns({what: lambda act=act: timed(act) for what, act in cases.items()}, chosen.rounds, 1)
    found = {}
    for what, each in taken.items():
        found[what] = [one[0] for one in each]
        if what == STALL:
            found[ON_DISK] = [one[1] for one in each]
    pairs = {
        "stall_over_copy": (STALL, "copy in memory"),
        "foreground_over_safetensors": ("ours, in the foreground", "safetensors and fsync"),
        "stall_over_torch_save": (STALL, "torch.save and fsync"),
    }
    return {
        "what": f"{chosen.width}d with {VOCAB:,} ids and the state of AdamW",
        "bytes": sum(tensor.nbytes for tensor in (*state.weights.values(), *state.training.values())),
        "seconds": summaries(found), "goals": GOALS,
        "ratios": {name: ratios(found[one], found[other]) for name, (one, other) in pairs.items()},
    }  # fmt: skip
