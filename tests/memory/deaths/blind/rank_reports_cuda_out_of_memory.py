"""One rank of two runs out of memory of its GPU; the launcher only says that a child failed."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 200
# ///

import subprocess
import sys
import time

from kit import grow

if sys.argv[1:]:
    held = grow(25, seconds=1)
    time.sleep(1)
    if sys.argv[1] == "1":
        print(
            "[rank1]: Traceback (most recent call last):\n"
            '[rank1]:   File "train.py", line 212, in step\n'
            "[rank1]:     logits = model(tokens)\n"
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has a "
            "total capacity of 79.15 GiB of which 1.03 GiB is free. Including non-PyTorch memory, this "
            "process has 78.10 GiB memory in use. Of the allocated memory 74.92 GiB is allocated by PyTorch, "
            "and 1.71 GiB is reserved by PyTorch but unallocated.",
            file=sys.stderr,
        )
        sys.exit(1)
    time.sleep(20)
    sys.exit(0)
ranks = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in (0, 1)]
code = ranks[1].wait()
ranks[0].terminate()
ranks[0].wait()
print(
    f"E1127 10:00:00 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
    f"local_rank: 1 (pid: {ranks[1].pid}) of binary: /opt/conda/bin/python\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED",
    file=sys.stderr,
)
sys.exit(1)
