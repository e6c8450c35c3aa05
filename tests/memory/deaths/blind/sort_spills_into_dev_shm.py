"""Keys are made unique by `sort`, whose temporary files go to /dev/shm and so stay in the job's memory."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 160
# shm_mb = 600
# ///

import os
import subprocess

from kit import MB, over

seen = bytearray(b"x") * (30 * MB)
command = ["sort", "-u", "-S", "8M", "-T", "/dev/shm", "-o", "/dev/null"]
with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}) as sorting:
    assert sorting.stdin is not None
    keys = sorting.stdin

    def send(number: int) -> None:
        text = os.urandom(MB // 2).hex()
        keys.write("\n".join(text[at : at + 64] for at in range(0, len(text), 64)).encode() + b"\n")

    over(6.0, 250, send)
raise SystemExit(sorting.returncode)
