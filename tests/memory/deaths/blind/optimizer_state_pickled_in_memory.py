"""Training fits; at the checkpoint the whole state is copied and pickled in memory."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 170
# ///

import pickle
import time

from kit import FOLDER, as_a_run, grow

from memory import stage

with as_a_run():
    state = {"model": grow(45, seconds=0.5), "optimizer": grow(45, seconds=0.5)}
    for step in range(1, 16):
        with stage("train", step=step):
            time.sleep(0.1)
    with stage("save_checkpoint", step=15):
        text = pickle.dumps({name: [bytes(part) for part in parts] for name, parts in state.items()})
        (FOLDER / "last.ckpt").write_bytes(text)
