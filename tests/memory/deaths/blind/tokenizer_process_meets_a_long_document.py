"""A tokenizer in a process of its own swallows one endless document; the main one then exits with 3."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 140
# ///

import subprocess
import sys
import time


def tokenize() -> None:
    ids: list[int] = []
    while len(ids) < 10_000_000:
        ids.extend(range(10_000 + len(ids), 110_000 + len(ids)))
        time.sleep(0.04)
    print("tokens", len(ids))


def main() -> None:
    held = bytearray(b"x") * (10 << 20)
    ended = subprocess.run([sys.executable, __file__, "tokenize"])
    time.sleep(0.5)
    if ended.returncode != 0:
        print(f"tokenizer ended with {ended.returncode}; {len(held)} bytes of text are lost", file=sys.stderr)
        sys.exit(3)


if sys.argv[1:] == ["tokenize"]:
    tokenize()
else:
    main()
