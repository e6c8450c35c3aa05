"""nanoGPT's own train.py from a checkout (github.com/karpathy/nanoGPT), not a line of it changed.

As its README has it on a CPU: --device=cpu --compile=False. What it evaluates at the start is cut short.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns


def main() -> None:
    job = Job.of_command_line()
    turns = Turns(job.threads)
    turns.hook()
    folder = Path(job.folder)
    data = folder / "data" / "tokens"
    data.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (data / name).symlink_to(job.tokens)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": job.vocabulary}))
    for name in ("train.py", "model.py", "configurator.py"):
        (folder / name).symlink_to(Path(job.checkout).resolve() / name)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [
        "train.py", "--device=cpu", f"--compile={job.compile}", "--dtype=float32", "--dataset=tokens",
        f"--batch_size={job.batch}", f"--block_size={job.seq_len}", "--gradient_accumulation_steps=1",
        f"--n_layer={job.layers}", f"--n_head={job.heads}", f"--n_embd={job.width}", "--bias=True",
        "--eval_iters=1", "--eval_interval=1000000", "--grad_clip=1.0",
    ]  # fmt: skip
    runpy.run_path("train.py", run_name="__main__")


if __name__ == "__main__":
    main()
