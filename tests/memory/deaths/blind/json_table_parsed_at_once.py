"""One large JSON table is parsed in one call (nuscenes-devkit#439)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load", "growth"]
# victim = "main"
# limit_mb = 150
# ///

import json
import time

from kit import FOLDER

path = FOLDER / "sample_data.json"
with open(path, "w") as file:
    file.write("[")
    for n in range(400_000):
        file.write(("," if n else "") + json.dumps({"token": f"{n:032x}", "prev": n - 1, "next": n + 1}))
    file.write("]")
time.sleep(1)
with open(path) as file:
    table = json.load(file)
print(len(table))
time.sleep(1)
