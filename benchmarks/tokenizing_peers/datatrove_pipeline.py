"""datatrove: JsonlReader and DocumentTokenizer, a task for each worker on a part of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import flat, main


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    steps = [
        JsonlReader(f"{corpus}-parts"),
        DocumentTokenizer(
            str(output / "tokens"),
            tokenizer_name_or_path=str(tokenizer / "tokenizer.json"),
            eos_token="<|endoftext|>",
            shuffle_documents=False,
        ),
    ]
    LocalPipelineExecutor(
        steps, tasks=workers, workers=workers, logging_dir=str(output / "logs"), skip_completed=False
    ).run()


def ids(output: Path) -> Iterator[np.ndarray]:
    for path in sorted((output / "tokens").glob("*.ds")):
        yield from flat(path, "<u2")


if __name__ == "__main__":
    main(tokenize, ids)
