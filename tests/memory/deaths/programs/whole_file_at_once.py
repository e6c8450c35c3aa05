"""A token file larger than the limit is read whole."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load", "growth"]
# victim = "main"
# limit_mb = 150
# ///

import time

from kit import as_a_run, token_file

from memory import stage

path = token_file(400)
with as_a_run():
    with stage("start"):
        time.sleep(1)
    with stage("open_dataset", path=str(path), file_bytes=path.stat().st_size):
        tokens = path.read_bytes()
