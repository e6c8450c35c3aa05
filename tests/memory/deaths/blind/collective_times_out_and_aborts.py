"""The watchdog of NCCL sees an allreduce that never ends, and takes its own process down with SIGABRT."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none"]
# limit_mb = 200
# ///

import os
import sys
import time

from kit import grow

model = grow(90, seconds=1)
time.sleep(2)
print(
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=48211, OpType=ALLREDUCE, NumelIn=25559081, NumelOut=25559081, Timeout(ms)=600000) "
    "ran for 600029 milliseconds before timing out.\n"
    "[rank0]:[E ProcessGroupNCCL.cpp:630] To avoid data inconsistency, we are taking the entire "
    "process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG ID 0 PG GUID 0 Rank 0] Process group watchdog thread terminated with exception",
    file=sys.stderr,
    flush=True,
)
os.abort()
