"""A token file is read whole, piece by piece, and is larger than the limit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load"]
# victim = "main"
# limit_mb = 180
# ///

from kit import MB, as_a_run, over, token_file

from memory import stage

path = token_file(300)
size = path.stat().st_size
recorded = as_a_run()
with recorded, stage("open_dataset", path=str(path), file_bytes=size), open(path, "rb") as file:
    tokens = bytearray()
    over(4, 300, lambda _: tokens.extend(file.read(MB)))
