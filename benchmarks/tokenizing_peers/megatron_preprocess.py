"""Megatron-LM's tools/preprocess_data.py, and preprocess_data_fast.py where the checkout has it.

The tools are in no package: MEGATRON names a checkout of github.com/NVIDIA/Megatron-LM, VARIANT is
standard or fast. Both are read from the environment. The tools import all of Megatron: its 10 s or so of
start are in `start_s`. Of Python 3.12 it wants no more than the decorator `override`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import flat, main

START = """
import runpy, sys, typing, typing_extensions
typing.override = typing_extensions.override
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def command(
    corpus: Path, output: Path, tokenizer: Path, workers: int, checkout: Path, variant: str
) -> list[str]:
    name, own = {
        "standard": ("preprocess_data.py", ["--workers", str(workers)]),
        "fast": ("preprocess_data_fast.py", ["--use-gigatoken"]),
    }[variant]
    return [
        sys.executable, "-c", START, str(checkout / "tools" / name), "--input", f"{corpus}.jsonl",
        "--output-prefix", str(output / "data"), "--tokenizer-type", "HuggingFaceTokenizer",
        "--tokenizer-model", str(tokenizer), "--append-eod", *own,
    ]  # fmt: skip


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    checkout, variant = Path(os.environ["MEGATRON"]), os.environ["VARIANT"]
    subprocess.run(command(corpus, output, tokenizer, workers, checkout, variant), check=True)


def ids(output: Path) -> Iterator[np.ndarray]:
    yield from flat(output / "data_text_document.bin", "<u2")


if __name__ == "__main__":
    main(tokenize, ids)
