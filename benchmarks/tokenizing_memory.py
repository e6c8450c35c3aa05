"""Measure peak memory of the pretokenizer by size of its input, 10 MB to 10 GB: it should be flat.

The first sizes are prefixes of the mix of corpora.py; more than it holds is made of its documents in other
orders, the lines of each shuffled, so that long words and caches meet new neighbours.

    python benchmarks/tokenizing_memory.py [--tokenizer FOLDER]     # about 6 minutes, 25 GB of disk
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.corpora import FOLDER, MIX_BYTES, corpora, prefix
from benchmarks.harness import ROOT, benchmark
from benchmarks.processes import MEMORY_WORDS, MemoryLook, run
from benchmarks.tokenizing import ours
from benchmarks.tokenizing_peers import SEPARATOR

GOALS_BYTES = {"job": 340 * 10**6}
DISK_BYTES_A_BYTE = 2.5
"""The text, its tokens, and some room."""


def row_of(text: Path, engine: str, tokenizer: Path, folder: Path) -> dict[str, Any]:
    """The row of a text and an engine."""
    output, look = folder / "out", MemoryLook()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = ours(text, output, tokenizer, "--document-separator", SEPARATOR, "--engine", engine)
    done = run(command, cwd=output, look=look, limit_s=3600)
    size = text.stat().st_size
    return {
        "text_bytes": size, "engine": engine, "job_peak_bytes": look.peak,
        "mb_s": round(size / 1e6 / done.wall_s, 1),
    }  # fmt: skip


def text_of(folder: Path, size: int, scratch: Path) -> Path:
    """A text of this size."""
    if size <= MIX_BYTES:
        return prefix(folder, "mix", size).with_suffix(".txt")
    path = scratch / "text.txt"
    with open(folder / "mix.jsonl", "rb") as lines, open(path, "wb") as text:
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        seed = 0
        while text.tell() < size:
            luck = random.Random(seed)
            for start in luck.sample(starts[:-1], len(starts) - 1):
                lines.seek(start)
                document = json.loads(lines.readline())["text"].splitlines(keepends=True)
                luck.shuffle(document)
                text.write(f"{''.join(document)}{SEPARATOR}\n".encode())
                if text.tell() >= size:
                    break
            seed += 1
    return path


@benchmark(
    corpora=(FOLDER, FOLDER / "quick"),
    tokenizer=Path,
    sizes_mb=([10, 100, 1000, 10_000], [1]),
    engines=(["fastokens"], ["fastokens"]),
)
def measured(chosen: Any) -> Any:
    corpora(chosen.corpora, is_quick=chosen.quick)
    needed, free = DISK_BYTES_A_BYTE * max(chosen.sizes_mb) * 10**6, shutil.disk_usage(chosen.corpora).free
    if free < needed:
        sys.exit(f"error: {chosen.corpora} has no room for {needed / 1e9:.0f} GB")
    tokenizer, rows = (chosen.tokenizer or ROOT / "gpt2_tokenizer").resolve(), []
    for size in chosen.sizes_mb:
        with tempfile.TemporaryDirectory(dir=chosen.corpora) as name:
            text = text_of(chosen.corpora, size * 10**6, Path(name))
            rows += [row_of(text, engine, tokenizer, Path(name)) for engine in chosen.engines]
    what = "peak memory of the whole command, GPT-2, a text of many documents"
    facts = {"what": what, "memory": MEMORY_WORDS, "goals_bytes": GOALS_BYTES}
    return facts | {"rows": rows}
