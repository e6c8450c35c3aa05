"""Steps in turns: whatever loop trains in this process stops after each optimizer step until it is its turn.

A hook of torch that every optimizer calls, so that each peer trains in its own unchanged loop. A step lasts
from the end of one call of the optimizer to the end of the next: the logging and the batch between them, the
forward and the backward pass, the clipping. The process prints a line of JSON after each and takes the next
step when it reads a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """What is trained, the same for all: folder: of this process alone; tokens: ids, uint16, no header.

    checkout: of a peer that is no package. compile: where a peer may choose.
    """

    folder: str
    tokens: str
    layers: int
    heads: int
    width: int
    vocabulary: int
    seq_len: int
    batch: int
    threads: int
    checkout: str = ""
    compile: bool = False

    @staticmethod
    def of_command_line() -> Job:
        return Job(**json.loads(sys.argv[1]))

    def text(self) -> str:
        return json.dumps(asdict(self))


class Turns:
    """What this process measures of itself; call `end_step` where a step ends."""

    def __init__(self, threads: int) -> None:
        """Loads torch: what is resident then is torch's own."""
        import torch

        torch.set_num_threads(threads)
        a = torch.ones(64, 64)
        (a @ a).sum().item()
        self._torch_bytes = status_bytes("VmRSS")
        # Peers print: what they say goes to the log.
        self._told = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = self._began_cpu = 0.0

    def hook(self) -> None:
        """Have every optimizer call it."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda *_: self.end_step())

    def end_step(self, **more: Any) -> None:
        """Tell of the step that ends here, wait for the next turn."""
        now, cpu = time.perf_counter(), time.process_time()
        found = {
            "step_s": now - self._began,
            "cpu_s": cpu - self._began_cpu,
            "peak_bytes": status_bytes("VmHWM"),
            "torch_bytes": self._torch_bytes,
            **more,
        }
        print(json.dumps(found), file=self._told, flush=True)
        if not sys.stdin.readline():
            os._exit(0)  # loaders and loggers of peers are not waited for
        self._began, self._began_cpu = time.perf_counter(), time.process_time()


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
