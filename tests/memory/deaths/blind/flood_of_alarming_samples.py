"""It prints 30 MB of samples from a corpus of forum posts that tell of kernels which kill."""

# /// case
# kind = "healthy"
# limit_mb = 80
# ///

import sys

from kit import FOLDER, over

POSTS = (
    "my training was Killed and I do not know why",
    "Out of memory: Killed process 4242 (python3) total-vm:81920000kB, anon-rss:31457280kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some tasks have been OOM Killed.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed.",
    "MemoryError",
    "Bus error (core dumped), /dev/shm was full",
)


def show(batch: int) -> None:
    text = "".join(f"sample {batch}.{n}: {POSTS[n % len(POSTS)]}\n" for n in range(8_000))
    sys.stdout.write(text)
    log.write(text)


with open(FOLDER / "samples.log", "w") as log:
    over(3, 50, show)
print("these were samples of the corpus, the last: " + POSTS[1], file=sys.stderr)
