"""Measure what a kill costs the pretokenizer: the command is killed at half of its work and started again.

Time lost is that of both attempts less that of an undisturbed run, each in turn in every round, shown with
the time of one block per worker, which must be done again. The bytes must be the same.

    python benchmarks/tokenizing_restart.py [--tokenizer FOLDER]    # about 3 minutes
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.corpora import FOLDER, corpora, prefix
from benchmarks.harness import ROOT, benchmark, summary
from benchmarks.tokenizing import ours
from benchmarks.tokenizing_peers import SEPARATOR

BLOCK_BYTES = 1 << 20


def attempt(
    text: Path, output: Path, tokenizer: Path, *, fresh: bool = True, kill_at_bytes: int | None = None
) -> float:
    """Seconds of the command, or until it was killed with this many bytes of tokens written."""
    if fresh:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
    command = ours(text, output, tokenizer, "--document-separator", SEPARATOR)
    started, quiet = time.perf_counter(), subprocess.DEVNULL
    process = subprocess.Popen([str(word) for word in command], stdout=quiet, stderr=quiet)
    if kill_at_bytes is not None:
        while process.poll() is None and written(output) < kill_at_bytes:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    status = process.wait()
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{command} exited with {status}")
    return time.perf_counter() - started


def written(output: Path) -> int:
    """Bytes of tokens in the files of an unfinished set."""
    return sum(path.stat().st_size for path in output.rglob("*.npy") if path.is_file())


def digest(output: Path) -> str:
    found = hashlib.sha256()
    for name in ("tokens.npy", "tokens.docs.npy"):
        with open(output / name, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


@benchmark(corpora=(FOLDER, FOLDER / "quick"), tokenizer=Path, size_mb=(1000, 3), rounds=(5, 1))
def measured(chosen: Any) -> Any:
    corpora(chosen.corpora, is_quick=chosen.quick)
    tokenizer = (chosen.tokenizer or ROOT / "gpt2_tokenizer").resolve()
    text, tiny = (
        prefix(chosen.corpora, "mix", size * 10**6).with_suffix(".txt") for size in (chosen.size_mb, 1)
    )
    found: dict[str, list[float]] = {}
    same = []
    with tempfile.TemporaryDirectory(dir=chosen.corpora) as name:
        folder = Path(name)
        for _ in range(chosen.rounds):
            start = attempt(tiny, folder / "tiny", tokenizer)
            whole = attempt(text, folder / "whole", tokenizer)
            half = (folder / "whole" / "tokens.npy").stat().st_size // 2
            killed = attempt(text, folder / "killed", tokenizer, kill_at_bytes=half)
            again = attempt(text, folder / "killed", tokenizer, fresh=False)
            block_share = BLOCK_BYTES * len(os.sched_getaffinity(0)) / text.stat().st_size
            seconds = {
                "whole_s": whole, "until_the_kill_s": killed, "after_it_s": again, "start_s": start,
                "lost_s": killed + again - whole, "a_block_per_worker_s": (whole - start) * block_share,
                "lost_without_a_second_start_s": killed + again - whole - start,
            }  # fmt: skip
            for key, value in seconds.items():
                found.setdefault(key, []).append(value)
            same.append(digest(folder / "whole") == digest(folder / "killed"))
    what = f"SIGKILL of the command at half of {chosen.size_mb} MB, then the same command again"
    result = {key: summary(values) for key, values in found.items()}
    return {"what": what, **result, "same_bytes": all(same)}
