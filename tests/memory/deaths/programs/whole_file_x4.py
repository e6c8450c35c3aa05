"""uint16 tokens become int64 as a whole: four times the file, which alone would have fitted."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load"]
# victim = "main"
# limit_mb = 250
# ///

from array import array

from kit import MB, as_a_run, over, token_file

from memory import stage

path = token_file(70)
size = path.stat().st_size
recorded = as_a_run()
with recorded, stage("open_dataset", path=str(path), file_bytes=size), open(path, "rb") as file:
    small = array("H", file.read())
    tokens = array("q")
    step = MB // 8
    over(4, len(small) // step, lambda at: tokens.extend(array("q", small[at * step : (at + 1) * step])))
