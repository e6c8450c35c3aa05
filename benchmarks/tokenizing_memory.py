"""Peak memory of the pretokenizer against the size of its input, 10 MB to 10 GB: it is to be flat.

The first sizes are prefixes of the mix of corpora.py; more than it holds is made of its documents in
other orders, the lines of each shuffled, so that long words and caches meet new neighbours.

    python benchmarks/tokenizing_memory.py [--tokenizer FOLDER]     # about 5 minutes, 35 GB of disk
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.corpora import DEFAULT_FOLDER, MIX_BYTES, SEPARATOR, absolute, corpora, free_bytes, prefix
from benchmarks.environment import save
from benchmarks.tokenizing_parts.whole_command import MEMORY_WORDS, run

GOALS_BYTES = {"worker": 300 * 10**6, "job": 10**9}
_DISK_BYTES_A_BYTE = 2.5
"""The text, its tokens, and room to breathe."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=absolute, default=DEFAULT_FOLDER, metavar="FOLDER")
    parser.add_argument("--tokenizer", type=absolute, default=ROOT / "gpt2_tokenizer", metavar="FOLDER")
    parser.add_argument("--sizes-mb", default="10,100,1000,10000")
    parser.add_argument("--engines", default="fastokens,gigatoken")
    parser.add_argument(
        "--provisional", action="store_true", help="say so in the result: the machine was busy"
    )
    options = parser.parse_args()
    corpora(options.corpora)
    sizes = [int(size) * 10**6 for size in options.sizes_mb.split(",")]
    if free_bytes(options.corpora) < _DISK_BYTES_A_BYTE * max(sizes):
        sys.exit(f"error: {options.corpora} has no room for {_DISK_BYTES_A_BYTE * max(sizes) / 1e9:.0f} GB")
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=options.corpora) as name:
            text = _text(options.corpora, size, Path(name))
            for engine in options.engines.split(","):
                rows.append(_row(text, engine, options.tokenizer, Path(name)))
                print(rows[-1], file=sys.stderr)
    save(
        "tokenizing_memory",
        {
            "provisional": options.provisional,
            "what": "peak memory of the whole command, GPT-2, a text of many documents",
            "memory": MEMORY_WORDS,
            "goals_bytes": GOALS_BYTES,
            "rows": rows,
            "largest_over_1_gb": _growth(rows),
        },
    )


def _row(text: Path, engine: str, tokenizer: Path, folder: Path) -> dict[str, Any]:
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = [
        sys.executable, str(ROOT / "pretokenize_dataset.py"), str(text), "--document-separator", SEPARATOR,
        "--tokenizer", str(tokenizer.resolve()), "--engine", engine, "--output", str(output / "tokens.npy"),
    ]  # fmt: skip
    measured = run(command, output)
    return {
        "text_bytes": text.stat().st_size,
        "engine": engine,
        "parent_peak_bytes": measured.parent_peak_bytes,
        "worker_peak_bytes": measured.worker_peak_bytes,
        "job_peak_bytes": measured.peak_bytes,
        "mb_s": round(text.stat().st_size / 1e6 / measured.wall_s, 1),
    }


def _text(folder: Path, size: int, scratch: Path) -> Path:
    if size <= MIX_BYTES:
        return prefix(folder, "mix", size).with_suffix(".txt")
    path = scratch / "text.txt"
    with open(folder / "mix.jsonl", "rb") as lines:
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        starts.pop()
        with open(path, "wb") as text:
            seed = 0
            while text.tell() < size:
                _write_shuffled(lines, starts, random.Random(seed), text, size)
                seed += 1
    return path


def _write_shuffled(lines: Any, starts: list[int], random_: random.Random, text: Any, size: int) -> None:
    for start in random_.sample(starts, len(starts)):
        lines.seek(start)
        document = json.loads(lines.readline())["text"].splitlines(keepends=True)
        random_.shuffle(document)
        text.write(f"{''.join(document)}{SEPARATOR}\n".encode())
        if text.tell() >= size:
            return


def _growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """By engine: the whole job's peak at the largest size over that at 1 GB, or at the largest below."""
    found = {}
    for engine in dict.fromkeys(row["engine"] for row in rows):
        own = [row for row in rows if row["engine"] == engine]
        base = [row for row in own if row["text_bytes"] <= 1.1 * MIX_BYTES][-1]
        found[engine] = round(own[-1]["job_peak_bytes"] / base["job_peak_bytes"], 3)
    return found


if __name__ == "__main__":
    main()
