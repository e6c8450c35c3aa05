"""What waiting threads cost: steps of 32d (bytes) as GNU OpenMP comes, and as a run sets it.

On the machine as it is and beside one busy process, interleaved; each case is a process of its own,
since OpenMP reads GOMP_SPINCOUNT when it is loaded.

    python benchmarks/threads.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from training.device import available_threads

CHILD = """
import statistics, sys, time
import torch
from conf.schema import Arch, Model, Optimizer
from models import build_model, resolve_loss_chunk
from training.device import Device
from training.optimizers import build_optimizer
from training.step import train_step
threads = int(sys.argv[1])
torch.set_num_threads(threads)
model = build_model(Model(), Arch(), 257, 128)
optimizer = build_optimizer(model, Optimizer(), "cpu")
ids = torch.randint(0, 257, (32, 128))
batch = {"input_ids": ids, "labels": ids}
seconds = []
for step in range(23):
    started = time.perf_counter()
    train_step(model, optimizer, iter([batch]), accumulation=1, lr=1e-3, grad_clip=1.0,
               loss_chunk=resolve_loss_chunk("auto", 257), device=Device("cpu", "fp32", threads))
    seconds.append(time.perf_counter() - started)
print(statistics.median(seconds[3:]))
"""


PLACES = ("as it is", "beside a busy process")
SETTINGS: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
}


def step_seconds(setting: str, threads: int) -> float:
    environment = os.environ | SETTINGS[setting]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(threads)],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = available_threads()
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for beside in PLACES:
            busy = None
            if beside != PLACES[0]:
                busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                for setting in SETTINGS:
                    found[f"{beside}, {setting}"].append(step_seconds(setting, threads))
            finally:
                if busy is not None:
                    busy.kill()
                    busy.wait()
    medians = {case: summary(values) for case, values in found.items()}
    default, ours = SETTINGS
    ratios = {
        beside: round(medians[f"{beside}, {default}"]["median"] / medians[f"{beside}, {ours}"]["median"], 3)
        for beside in PLACES
    }
    save(
        "threads",
        {
            "what": f"seconds a step, 32d, 257 ids, batch 32 x 128, {threads} threads",
            "step_s": medians,
            "default_over_ours": ratios,
        },
    )


if __name__ == "__main__":
    main()
