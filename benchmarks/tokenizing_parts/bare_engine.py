"""The ceiling: the bare engine in one process a core, each with its share of the text as blocks in memory.

Only the encoding is timed: no reading, no decoding, no cutting, no writing, nothing started or loaded.

    python benchmarks/tokenizing_parts/bare_engine.py ENGINE TEXT TOKENIZER WORKERS    # one line of JSON
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

_CHUNK_BYTES = 1 << 20


def encode(engine: Any, text: str, data: bytes) -> int:
    """How many ids the package behind our engine gives, called as our engine calls it."""
    if engine.name == "fastokens":
        return len(engine._tokenizer.encode_batch_flat([text], False, True)[0]) // 4
    if engine.name == "gigatoken":
        return len(engine._tokenizer.encode(data))
    return len(engine.encode_batch([data])[0])


def share(name: str, path: str, folder: str, part: int, parts: int, ready: Any, answers: Any) -> None:
    """One process: its part of the text, in blocks cut where the tokenizer allows."""
    from data_loading.lookup import load_tokenizer, tokenizer_spec
    from data_loading.pretokenizer.blocks import Chunk, make_blocks
    from data_loading.pretokenizer.engines import ENGINES

    tokenizer = load_tokenizer(tokenizer_spec(folder))
    engine = ENGINES[name](tokenizer.json)
    engine.load()
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        file.seek(part * size // parts)
        data = file.read((part + 1) * size // parts - part * size // parts)
    data = data.decode("utf-8", "ignore").encode()  # a part may begin or end inside a character
    starts = range(0, len(data), _CHUNK_BYTES)
    chunks = [Chunk(data[at : at + _CHUNK_BYTES], path, at, at == starts[-1]) for at in starts]
    del data
    blocks = [
        (chunk.data.decode(), chunk.data)
        for block in make_blocks(chunks, tokenizer.cut_rule, engine.block_bytes)
        for chunk in block.chunks
    ]
    ready.wait()
    started = time.perf_counter()
    processor = time.process_time()
    tokens = sum(encode(engine, text, data) for text, data in blocks)
    answers.put(
        {
            "wall_s": time.perf_counter() - started,
            "cpu_s": time.process_time() - processor,
            "tokens": tokens,
            "bytes": sum(len(data) for _, data in blocks),
        }
    )


def main() -> None:
    name, path, folder, workers = sys.argv[1:]
    os.environ |= {
        "FASTOKENS_BPE_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"
    }  # fmt: skip
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(int(workers)), context.Queue()
    processes = [
        context.Process(target=share, args=(name, path, folder, part, int(workers), ready, answers))
        for part in range(int(workers))
    ]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    print(
        json.dumps(
            {
                "wall_s": round(max(part["wall_s"] for part in found), 3),
                "cpu_s": round(sum(part["cpu_s"] for part in found), 3),
                "tokens": sum(part["tokens"] for part in found),
                "bytes": sum(part["bytes"] for part in found),
            }
        )
    )


if __name__ == "__main__":
    main()
