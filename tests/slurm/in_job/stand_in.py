"""Stands for core.py in a copy of the code: a run whose steps compute nothing, stopped by signals as any.

It holds the run's lock and writes run.json, status.json and checkpoint folders. A real run takes five CPU
seconds to start.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

from experiment_utils import atomic_files
from training.attempt.run_files import run_lock

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
STEP_S = 0.02


def main(folder: Path) -> int:
    asked: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: asked.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    last_step = int(re.findall(r"max_steps: (\d+)", (folder / "config.yaml").read_text())[0])
    with run_lock(folder):
        first_step = step = max((int(one.name[5:]) for one in folder.glob("checkpoints/step-*")), default=0)
        record = folder / "run.json"
        attempts = json.loads(record.read_text())["attempts"] if record.exists() else []
        attempts.append({"attempt": len(attempts) + 1, "resumed_from_step": step})
        atomic_files.write_json(record, {"attempts": attempts})

        def write(state: str, reason: str | None = None) -> None:
            facts = {
                "state": state, "reason": reason, "step": step, "attempt": len(attempts),
                "stage": "train" if state == "running" else None,
                "heartbeat_s": time.time(), "host": socket.gethostname(), "pid": os.getpid(),
            }  # fmt: skip
            atomic_files.write_json(folder / "status.json", facts)

        write("running")
        while not asked and step < last_step:
            time.sleep(STEP_S)
            step += 1
            write("running")
        if step > first_step:
            (folder / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
        if not asked:
            write("done")
            return 0
        state = "cancelled" if asked[0] == signal.SIGTERM else "timeout"
        write(state, f"stopped by {signal.Signals(asked[0]).name}")
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
