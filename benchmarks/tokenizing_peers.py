"""Tools that tokenizing.py compares, and a digest of what each wrote.

python tokenizing_peers.py NAME CORPUS OUTPUT TOKENIZER WORKERS    # CORPUS.txt, CORPUS.jsonl, CORPUS-parts/*.jsonl
python tokenizing_peers.py NAME --digest OUTPUT                    # one line of JSON
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SEPARATOR = "<|endoftext|>"
EOT_ID = 50_256
Tokenize = Callable[[Path, Path, Path, int], None]
"""(corpus without suffix, output folder, tokenizer's folder, worker processes)"""


def datasets_map(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    """Hugging Face `datasets.map` over lines of JSON, with the tokenizer that its handbook uses."""
    os.environ["HF_DATASETS_CACHE"] = str(output / "cache")
    from datasets import load_dataset
    from transformers import AutoTokenizer

    encoder = AutoTokenizer.from_pretrained(str(tokenizer))

    def encode(batch: dict[str, Any]) -> dict[str, Any]:
        return {"ids": [[*ids, EOT_ID] for ids in encoder(batch["text"])["input_ids"]]}

    data = load_dataset("json", data_files=f"{corpus}.jsonl", split="train")
    data = data.map(encode, batched=True, num_proc=workers, remove_columns=["text"])
    data.save_to_disk(output / "data")


def datasets_ids(output: Path) -> Iterator[np.ndarray]:
    from datasets import load_from_disk

    for batch in load_from_disk(output / "data").data.table.to_batches(max_chunksize=64):
        yield np.asarray(batch.column("ids").flatten())


def datatrove(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    """datatrove: JsonlReader and DocumentTokenizer, a task for each worker on a part of its own."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    path, separator = str(tokenizer / "tokenizer.json"), {"eos_token": SEPARATOR, "shuffle_documents": False}
    writer = DocumentTokenizer(str(output / "tokens"), tokenizer_name_or_path=path, **separator)
    how = {"tasks": workers, "workers": workers, "skip_completed": False}
    steps = [JsonlReader(f"{corpus}-parts"), writer]
    LocalPipelineExecutor(steps, logging_dir=str(output / "logs"), **how).run()


def litdata_optimize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    """litdata's optimizer with its loader of tokens, a part of the text for each worker."""
    import litdata
    from tokenizers import Tokenizer

    litdata.optimize(
        fn=partial(litdata_part, encoder=Tokenizer.from_file(str(tokenizer / "tokenizer.json"))),
        inputs=sorted(map(str, Path(f"{corpus}-parts").iterdir())), output_dir=str(output / "data"),
        chunk_bytes="64MB", num_workers=workers, item_loader=litdata.TokensLoader(),
    )  # fmt: skip


def litdata_part(path: str, encoder: Any) -> Iterator[Any]:
    import torch

    with open(path, encoding="utf-8") as lines:
        for line in lines:
            ids = encoder.encode(json.loads(line)["text"], add_special_tokens=False).ids
            yield torch.tensor([*ids, EOT_ID], dtype=torch.int32)


def litdata_ids(output: Path) -> Iterator[np.ndarray]:
    """A chunk: the number of items, the begin of each and the end of the last, then the ids."""
    for path in sorted((output / "data").glob("chunk-*.bin")):
        count = int(np.fromfile(path, "<u4", 1)[0])
        yield np.memmap(path, "<i4", "r", offset=4 * (count + 2))


MEGATRON_START = """
import runpy, sys, typing, typing_extensions
typing.override = typing_extensions.override
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def megatron(corpus: Path, output: Path, tokenizer: Path, workers: int, *, tool: str, own: list[str]) -> None:
    """Megatron-LM's tools/preprocess_data.py and preprocess_data_fast.py, of the checkout MEGATRON.

    The tools import all of Megatron: some 10 s of start are in `start_s`. The only thing of Python 3.12 that
    they use is the decorator `override`.
    """
    command = [
        sys.executable, "-c", MEGATRON_START, f"{os.environ['MEGATRON']}/tools/{tool}", "--input",
        f"{corpus}.jsonl", "--output-prefix", str(output / "data"), "--tokenizer-type",
        "HuggingFaceTokenizer", "--tokenizer-model", str(tokenizer), "--append-eod",
        *(word.format(workers=workers) for word in own),
    ]  # fmt: skip
    subprocess.run(command, check=True)


def one_list(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    """The script that this project replaces: pieces of 2000 characters, all ids in one list."""
    from transformers import AutoTokenizer

    encoder = AutoTokenizer.from_pretrained(str(tokenizer))
    with open(corpus.with_suffix(".txt")) as file:
        text = file.read()
    tokens = []
    for start in range(0, len(text), 2000):
        piece = text[start : start + 2000]
        tokens.extend(encoder(piece, truncation=True, max_length=1024)["input_ids"])
    np.save(output / "tokens.npy", np.array(tokens))


def tiktoken_start(folder: Path) -> None:
    """tiktoken's GPT-2, from vocab.json and merges.txt instead of a download."""
    global encoding
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    files = {"vocab_bpe_file": str(folder / "merges.txt"), "encoder_json_file": str(folder / "vocab.json")}
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    how = {"pat_str": pattern, "special_tokens": {SEPARATOR: EOT_ID}}
    ranks = data_gym_to_mergeable_bpe_ranks(**files)
    encoding = tiktoken.Encoding("gpt2-local", mergeable_ranks=ranks, **how)


def tiktoken_encode(text: str) -> np.ndarray:
    return np.array([*encoding.encode_ordinary(text), EOT_ID], np.uint16)


def tiktoken_pool(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    """tiktoken in a pool of processes, as llm.c's data/fineweb.py: a document a call, uint16 to a file."""
    with (
        multiprocessing.Pool(workers, tiktoken_start, (tokenizer,)) as pool,
        open(output / "tokens.bin", "wb") as file,
    ):
        for ids in pool.imap(tiktoken_encode, documents_of(corpus.with_suffix(".txt")), chunksize=16):
            file.write(ids.tobytes())


def documents_of(path: Path) -> Iterator[str]:
    """Texts between the separator lines of a file, read a line at a time."""
    lines: list[str] = []
    with open(path, encoding="utf-8", newline="") as file:
        for line in file:
            if line == f"{SEPARATOR}\n":
                yield "".join(lines)
                lines = []
            else:
                lines.append(line)
    yield "".join(lines)


def bare(corpus: Path, output: Path, tokenizer: Path, workers: int, *, engine: str) -> None:
    """The ceiling: the bare engine in one process a core, each with its part of the text in memory.

    Only the encoding is timed: no reading, decoding, cutting, writing or start. Prints one line of JSON.
    """
    os.environ |= dict.fromkeys(("FASTOKENS_BPE_THREADS", "RAYON_NUM_THREADS"), "1")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(workers), context.Queue()
    how = (engine, f"{corpus}.txt", str(tokenizer), workers, ready, answers)
    processes = [context.Process(target=bare_part, args=(part, *how)) for part in range(workers)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    whole = {key: sum(part[key] for part in found) for key in ("cpu_s", "tokens", "bytes")}
    print(json.dumps(whole | {"wall_s": max(part["wall_s"] for part in found)}))


def bare_part(
    part: int, name: str, path: str, folder: str, parts: int, ready: Any, answers: Any
) -> None:  # fmt: skip
    """One process: its part of the text, in blocks that are cut as the tokenizer allows."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from data_loading.pretokenizer.blocks import make_blocks
    from data_loading.pretokenizer.engines.registry import ENGINES
    from data_loading.text_io.chunks import Chunk
    from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec

    tokenizer = load_tokenizer(tokenizer_spec(folder))
    engine: Any = ENGINES[name].of(tokenizer)
    engine.load()
    size, step = Path(path).stat().st_size, 1 << 20
    with open(path, "rb") as file:
        file.seek(part * size // parts)
        data = file.read((part + 1) * size // parts - part * size // parts)
    data = data.decode("utf-8", "ignore").encode()  # a part may begin or end inside a character
    starts = range(0, len(data), step)
    chunks = [Chunk(data[at : at + step], path, at, at == starts[-1]) for at in starts]
    blocks = [
        (chunk.data.decode(), chunk.data)
        for block in make_blocks(chunks, tokenizer.cut_rule, engine.block_bytes)
        for chunk in block.chunks
    ]

    def encode(text: str, block: bytes) -> int:
        """Number of ids of the package behind our engine, called as our engine calls it."""
        return len(engine._tokenizer.encode_batch_flat([text], False, True)[0]) // 4

    ready.wait()
    started, cpu = time.perf_counter(), time.process_time()
    tokens = sum(encode(*block) for block in blocks)
    spent = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    answers.put(spent | {"tokens": tokens, "bytes": sum(len(block) for _, block in blocks)})


def flat(name: str, dtype: str, offset: int = 0) -> Callable[[Path], Iterator[np.ndarray]]:
    """Reads files of nothing but ids, behind `offset` bytes."""

    def ids(output: Path) -> Iterator[np.ndarray]:
        for path in sorted(output.glob(name)):
            values = np.memmap(path, dtype, "r", offset)
            for start in range(0, len(values), 1 << 22):
                yield values[start : start + (1 << 22)]

    return ids


TOOLS: dict[str, tuple[Tokenize | None, Callable[[Path], Iterable[np.ndarray]]]] = {
    "ours": (None, flat("tokens.npy", "<u2", 128)),
    "datasets.map": (datasets_map, datasets_ids),
    "datatrove": (datatrove, flat("tokens/*.ds", "<u2")),
    "litdata": (litdata_optimize, litdata_ids),
    "megatron": (
        partial(megatron, tool="preprocess_data.py", own=["--workers", "{workers}"]),
        flat("data_text_document.bin", "<u2"),
    ),
    "megatron-fast": (
        partial(megatron, tool="preprocess_data_fast.py", own=["--use-gigatoken"]),
        flat("data_text_document.bin", "<u2"),
    ),
    "one-list": (one_list, flat("tokens.npy", "<i8", 128)),
    "tiktoken": (tiktoken_pool, flat("tokens.bin", "<u2")),
    "bare fastokens": (partial(bare, engine="fastokens"), flat("", "")),
}
"""By name: what tokenizes, and what reads the written ids, with an end-of-text id after each document."""


def digest(pieces: Iterable[np.ndarray]) -> dict[str, int | str]:
    """Tokens of text, documents, and a sum over the documents' hashes, which no order changes."""
    tokens = documents = total = 0
    for document in _documents(pieces):
        if len(document):
            tokens, documents = tokens + len(document), documents + 1
            total += int.from_bytes(hashlib.sha256(document.astype("<u4").tobytes()).digest()[:16], "big")
    return {"tokens": tokens, "documents": documents, "digest": f"{total % (1 << 128):032x}"}


def _documents(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    rest: list[np.ndarray] = []
    for piece in pieces:
        start = 0
        for end in np.flatnonzero(piece == EOT_ID):
            yield np.concatenate([*rest, piece[start:end]])
            rest, start = [], int(end) + 1
        rest.append(np.array(piece[start:]))
    if rest:
        yield np.concatenate(rest)


def main() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    tokenize, ids = TOOLS[sys.argv[1]]
    if sys.argv[2] == "--digest":
        print(json.dumps(digest(ids(Path(sys.argv[3])))))
        return
    assert tokenize is not None
    corpus, output, tokenizer, workers = sys.argv[2:]
    Path(output).mkdir(parents=True, exist_ok=True)
    tokenize(Path(corpus), Path(output), Path(tokenizer), int(workers))


if __name__ == "__main__":
    main()
