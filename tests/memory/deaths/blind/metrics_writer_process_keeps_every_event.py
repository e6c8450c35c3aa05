"""A writer of metrics keeps all images it was sent; the kernel kills it and the training's pipe breaks."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "child"
# limit_mb = 150
# ///

import subprocess
import sys

from kit import MB, as_a_run, over

from memory import stage

WRITER = """
import sys
events = []
while image := sys.stdin.buffer.read(1 << 20):
    events.append(image)
"""
image = b"x" * MB
with as_a_run(), subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE) as writer:
    assert writer.stdin is not None
    pipe = writer.stdin

    def train(step: int) -> None:
        with stage("train", step=step):
            pipe.write(image)
            pipe.flush()

    over(8.0, 250, train)
