"""What the loader adds to a process over 2,000 batches: anonymous memory, and mapped file pages.

A file of 2^28 uint16 tokens is read in shuffled windows by a fresh process, page cache warm. RssAnon
is what counts against a limit; RssFile is page cache that happens to be mapped, and reclaimable.
Goal: RssAnon grows by at most 1 MB.

    python benchmarks/loader_memory.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.environment import save

TOKENS = 1 << 28
VOCABULARY = 50_257
BATCHES = 2000
WARM_UP = 20
GOAL_BYTES = 1 << 20
SHAPES = ((1024, 32), (128, 256))
"""seq_len, batch size."""


def resident() -> dict[str, int]:
    """RssAnon, RssFile and VmRSS of this process, bytes (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile", "VmRSS")}


def write_tokens(path: Path) -> None:
    """Random ids, so that no page is a hole; checked once, as a lone file is."""
    from data_loading import open_token_set

    tokens = np.lib.format.open_memmap(path, "w+", np.dtype("<u2"), (TOKENS,))
    block = 1 << 24
    for start in range(0, TOKENS, block):
        tokens[start : start + block] = np.random.default_rng(start).integers(0, VOCABULARY, block, np.uint16)
    tokens.flush()
    open_token_set(path, VOCABULARY)


def measure(path: Path, seq_len: int, batch_size: int) -> dict[str, Any]:
    """Growth of this process over BATCHES batches after a short warm-up, and the rate on the way."""
    import torch

    from data_loading import StreamingDataset, open_token_set

    torch.set_num_threads(1)
    dataset = StreamingDataset(open_token_set(path, VOCABULARY), seq_len=seq_len)
    batches = iter(dataset.loader(batch_size, repeat=True))
    for _ in range(WARM_UP):
        next(batches)
    before, started = resident(), time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    seconds, after = time.perf_counter() - started, resident()
    growth = {name: after[name] - before[name] for name in before}
    return {
        "seq_len": seq_len,
        "batch_size": batch_size,
        "growth_bytes": growth,
        "after_bytes": after,
        "million_tokens_a_second": round(BATCHES * batch_size * seq_len / seconds / 1e6, 1),
        "goal_met": growth["RssAnon"] <= GOAL_BYTES,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", nargs=3, metavar=("FILE", "SEQ_LEN", "BATCH"), help=argparse.SUPPRESS)
    asked = parser.parse_args().measure
    if asked:
        print(json.dumps(measure(Path(asked[0]), int(asked[1]), int(asked[2]))))
        return 0
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.npy"
        write_tokens(path)
        for shape in SHAPES:
            command = [sys.executable, __file__, "--measure", str(path), *map(str, shape)]
            runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    save(
        "loader_memory",
        {"tokens": TOKENS, "batches": BATCHES, "goal_rss_anon_bytes": GOAL_BYTES, "runs": runs},
    )
    return 0 if all(run["goal_met"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
