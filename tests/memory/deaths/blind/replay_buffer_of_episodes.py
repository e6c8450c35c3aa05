"""A replay buffer grows with each episode, unevenly, and has no end (RL-ViGen#17)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak", "growth"]
# victim = "main"
# limit_mb = 180
# ///

import random
import time

chosen, buffer = random.Random(3), []
for episode in range(4000):
    length = chosen.randrange(20, 120)
    buffer.append([bytes(8192).replace(b"\0", b"o") for _ in range(length)])
    time.sleep(0.012)
    if episode % 50 == 0:
        print(f"episode {episode} return {length}", flush=True)
