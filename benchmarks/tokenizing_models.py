"""Compare the whole command with Hugging Face's own batch encoding at its best, for other kinds of tokenizer.

No hub is asked: a byte-level BPE with Llama 3's pattern and a Unigram model are trained here. Hugging Face's
`tokenizers` encodes with all its threads, from memory, in the best of several ways: documents whole or in
pieces, with and without offsets. Only its encoding is timed; ours is the whole command.

    python benchmarks/tokenizing_models.py            # about 10 minutes
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.corpora import FOLDER, corpora, prefix
from benchmarks.harness import benchmark, in_turns, ratios, summary
from benchmarks.processes import MemoryLook, run
from benchmarks.tokenizing import ours
from benchmarks.tokenizing_peers import SEPARATOR

LLAMA_3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
TRAINED_ON = {"llama-3-like": ("mix", 20), "unigram": ("english", 4)}
"""Corpus and MB. A Unigram model trains for hours on text without spaces, which the mix has too."""
BEST = """
import json, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
documents = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
def blocks(size):
    for text in documents:
        start = 0
        while start < len(text):
            stop = text.rfind(" ", start + 1, start + size) if len(text) - start > size else len(text)
            stop = stop if stop > start else min(len(text), start + size)
            yield text[start:stop]
            start = stop
ways = {"documents": documents}
for size in (4000, 500):
    ways[f"blocks of {size} characters"] = list(blocks(size))
found = {}
for way, texts in ways.items():
    for call in ("encode_batch", "encode_batch_fast") if texts is documents else ("encode_batch_fast",):
        encode, tokens = getattr(tokenizer, call), 0
        started = time.perf_counter()
        for first in range(0, len(texts), 1000):
            tokens += sum(map(len, encode(texts[first : first + 1000], add_special_tokens=False)))
        found[f"{call}, {way}"] = [time.perf_counter() - started, tokens]
print(json.dumps(found))
"""


def train(kind: str, size: int, folder: Path, train_mb: int) -> Path:
    """A folder with the tokenizer.json; trained once and kept."""
    target = folder / "tokenizers" / f"{kind}-{size}"
    if (target / "tokenizer.json").exists():
        return target
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    how: dict[str, Any] = {"vocab_size": size, "show_progress": False}
    if kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        made.decoder = decoders.Metaspace(prepend_scheme="never")
        trainer: Any = trainers.UnigramTrainer(special_tokens=["<unk>", SEPARATOR], unk_token="<unk>", **how)
    else:
        made = Tokenizer(models.BPE(ignore_merges=True))
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        pattern = pre_tokenizers.Split(Regex(LLAMA_3_PATTERN), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([pattern, bytes_])
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=[SEPARATOR], initial_alphabet=alphabet, **how)
    text = prefix(folder, TRAINED_ON[kind][0], train_mb * 10**6).with_suffix(".jsonl")
    with open(text, encoding="utf-8") as lines:
        made.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    target.mkdir(parents=True, exist_ok=True)
    made.save(str(target / "tokenizer.json"))
    return target


def command(tokenizer: Path, text: Path, folder: Path) -> dict[str, Any]:
    """The whole command: seconds, peaks, engine, tokens."""
    output, look = folder / "out", MemoryLook()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    words = ours(f"{text}.txt", output, tokenizer, "--document-separator", SEPARATOR, "--json")
    done = run(words, cwd=output, look=look)
    facts = json.loads(done.output[done.output.index("\n{") :])
    own = {"engine": facts["engine"]["name"], "tokens": facts["text_tokens"]}
    return own | {"seconds": done.wall_s, "peak": look.peak}


def best(tokenizer: Path, text: Path) -> dict[str, Any]:
    """The fastest way of `tokenizers`."""
    words = [sys.executable, "-c", BEST, tokenizer / "tokenizer.json", f"{text}.jsonl"]
    ways = run(words, env={"TOKENIZERS_PARALLELISM": "true"}, errors=False).json
    way = min(ways, key=lambda name: ways[name][0])
    return {"way": way, "seconds": ways[way][0], "tokens": ways["encode_batch, documents"][1]}


@benchmark(
    corpora=(FOLDER, FOLDER / "quick"),
    size_mb=(50, 1),
    rounds=(3, 1),
    ids=([64_000, 16_000], [500, 400]),
    train_mb=([20, 4], [1, 1]),
)
def measured(chosen: Any) -> Any:
    corpora(chosen.corpora, is_quick=chosen.quick)
    text, rows = prefix(chosen.corpora, "mix", chosen.size_mb * 10**6), []
    megabytes = text.with_suffix(".txt").stat().st_size / 1e6
    for kind, size, train_mb in zip(TRAINED_ON, chosen.ids, chosen.train_mb, strict=True):
        tokenizer = train(kind, size, chosen.corpora, train_mb)
        with tempfile.TemporaryDirectory(dir=chosen.corpora) as name:
            cases = {
                "ours": partial(command, tokenizer, text, Path(name)),
                "best": partial(best, tokenizer, text),
            }
            found = in_turns(cases, chosen.rounds)
        own, theirs = ([one["seconds"] for one in found[name]] for name in ("ours", "best"))
        rows.append({
            "tokenizer": kind, "ids": size, "engine": found["ours"][0]["engine"],
            "ours_mb_s": summary([megabytes / seconds for seconds in own]),
            "hugging_face_best_mb_s": summary([megabytes / seconds for seconds in theirs]),
            "best_way": found["best"][0]["way"], "ours_over_its_best": ratios(theirs, own),
            "peak_memory_bytes": max(one["peak"] for one in found["ours"]),
            "same_number_of_tokens": found["ours"][0]["tokens"] == found["best"][0]["tokens"],
        })  # fmt: skip
    what = f"whole command on {chosen.size_mb} MB of the mix against Hugging Face's encoding alone"
    trained_on = {kind: (corpus, size * 10**6) for kind, (corpus, size) in TRAINED_ON.items()}
    return {"what": what, "trained_on": trained_on, "rows": rows}
