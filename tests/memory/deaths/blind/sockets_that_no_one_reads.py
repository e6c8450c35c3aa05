"""Results are sent through sockets that no process reads: the kernel holds them."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["kernel"]
# limit_mb = 120
# ///

import socket
import time

pairs = []
for _ in range(4000):
    pair = socket.socketpair()
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    pair[0].setblocking(False)
    try:
        while True:
            pair[0].send(b"r" * 8192)
    except BlockingIOError:
        pairs.append(pair)
    time.sleep(0.01)
