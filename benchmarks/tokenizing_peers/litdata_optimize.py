"""litdata's optimizer with its loader of tokens, a part of the text for each worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import EOT_ID, main


def encoded(path: str, encoder) -> Iterator:
    import torch

    with open(path, encoding="utf-8") as lines:
        for line in lines:
            ids = encoder.encode(json.loads(line)["text"], add_special_tokens=False).ids
            yield torch.tensor([*ids, EOT_ID], dtype=torch.int32)


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    import litdata
    from tokenizers import Tokenizer

    litdata.optimize(
        fn=partial(encoded, encoder=Tokenizer.from_file(str(tokenizer / "tokenizer.json"))),
        inputs=sorted(map(str, Path(f"{corpus}-parts").iterdir())),
        output_dir=str(output / "data"),
        chunk_bytes="64MB",
        num_workers=workers,
        item_loader=litdata.TokensLoader(),
    )


def ids(output: Path) -> Iterator[np.ndarray]:
    """A chunk: the number of items, where each begins and the last ends, then the ids."""
    for path in sorted((output / "data").glob("chunk-*.bin")):
        count = int(np.fromfile(path, "<u4", 1)[0])
        yield np.memmap(path, "<i4", "r", offset=4 * (count + 2))


if __name__ == "__main__":
    main(tokenize, ids)
