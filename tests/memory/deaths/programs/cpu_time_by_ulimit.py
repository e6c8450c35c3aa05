"""`ulimit -t` in a login script: the kernel sends SIGKILL, and nobody asked for it."""

# /// case
# kind = "death"
# verdict = ["timeout"]
# limit_mb = 200
# says = ["RLIMIT_CPU"]
# ///

import resource

resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
while True:
    pass
