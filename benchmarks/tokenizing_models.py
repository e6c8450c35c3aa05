"""Other kinds of tokenizer: the whole command against Hugging Face's own batch encoding at its best.

No hub is asked: a byte-level BPE with Llama 3's pattern and a Unigram model are trained here. Hugging
Face's `tokenizers` encodes with all its threads, from memory, in the best of several ways: documents whole
or in pieces, with and without offsets. Only its encoding is timed; ours is the whole command.

    python benchmarks/tokenizing_models.py            # about 10 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.corpora import DEFAULT_FOLDER, SEPARATOR, absolute, corpora, prefix
from benchmarks.environment import save, summary
from benchmarks.tokenizing_parts.whole_command import run

LLAMA_3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SIZES = {"llama-3-like": 64_000, "unigram": 16_000}
TRAINED_ON = {"llama-3-like": ("mix", 20 * 10**6), "unigram": ("english", 4 * 10**6)}
"""Corpus and bytes. Of text without spaces, which the mix has too, a Unigram model is trained for hours."""

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=absolute, default=DEFAULT_FOLDER, metavar="FOLDER")
    parser.add_argument("--size-mb", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--provisional", action="store_true", help="say so in the result: the machine was busy"
    )
    options = parser.parse_args()
    corpora(options.corpora)
    text = prefix(options.corpora, "mix", options.size_mb * 10**6)
    text_bytes = text.with_suffix(".txt").stat().st_size
    rows = []
    with tempfile.TemporaryDirectory(dir=options.corpora) as name:
        for kind, size in SIZES.items():
            folder = train(kind, size, options.corpora)
            measured = [_round(folder, text, Path(name)) for _ in range(options.rounds)]
            rows.append(_row(kind, size, text_bytes, measured))
            print(rows[-1], file=sys.stderr)
    save(
        "tokenizing_models",
        {
            "provisional": options.provisional,
            "what": f"whole command on {options.size_mb} MB of the mix against Hugging Face's encoding alone",
            "trained_on": TRAINED_ON,
            "rows": rows,
        },
    )


def train(kind: str, size: int, folder: Path) -> Path:
    """A folder with the tokenizer.json; trained once and kept."""
    target = folder / "tokenizers" / f"{kind}-{size}"
    if not (target / "tokenizer.json").exists():
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

        if kind == "unigram":
            made = Tokenizer(models.Unigram())
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
            made.decoder = decoders.Metaspace(prepend_scheme="never")
            trainer: Any = trainers.UnigramTrainer(
                vocab_size=size, special_tokens=["<unk>", SEPARATOR], unk_token="<unk>", show_progress=False
            )
        else:
            made = Tokenizer(models.BPE(ignore_merges=True))
            split = pre_tokenizers.Split(Regex(LLAMA_3_PATTERN), "isolated")
            made.pre_tokenizer = pre_tokenizers.Sequence(
                [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            )
            made.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=size, special_tokens=[SEPARATOR], show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            )  # fmt: skip
        text = prefix(folder, *TRAINED_ON[kind]).with_suffix(".jsonl")
        with open(text, encoding="utf-8") as lines:
            made.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
        target.mkdir(parents=True, exist_ok=True)
        made.save(str(target / "tokenizer.json"))
    return target


def _round(tokenizer: Path, text: Path, folder: Path) -> dict[str, Any]:
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = [
        sys.executable, str(ROOT / "pretokenize_dataset.py"), str(text.with_suffix(".txt")),
        "--document-separator", SEPARATOR, "--tokenizer", str(tokenizer), "--output",
        str(output / "tokens.npy"), "--json",
    ]  # fmt: skip
    ours = run(command, output)
    facts = json.loads(ours.output[ours.output.index("\n{") :])
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "true"}
    done = subprocess.run(
        [sys.executable, "-c", BEST, tokenizer / "tokenizer.json", text.with_suffix(".jsonl")],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    ways = json.loads(done.stdout)
    documents = next(tokens for way, (_, tokens) in ways.items() if way.endswith("documents"))
    return {
        "ours_s": ours.wall_s,
        "engine": facts["engine"]["name"],
        "peak": ours.peak_bytes,
        "worker_peak": ours.worker_peak_bytes,
        "ways_s": {way: seconds for way, (seconds, _) in ways.items()},
        "same_count": facts["text_tokens"] == documents,
    }


def _row(kind: str, size: int, text_bytes: int, measured: list[dict[str, Any]]) -> dict[str, Any]:
    best = [min(one["ways_s"].values()) for one in measured]
    return {
        "tokenizer": kind,
        "ids": size,
        "engine": measured[0]["engine"],
        "ours_mb_s": summary([text_bytes / 1e6 / one["ours_s"] for one in measured]),
        "hugging_face_best_mb_s": summary([text_bytes / 1e6 / seconds for seconds in best]),
        "best_way": min(measured[0]["ways_s"], key=measured[0]["ways_s"].__getitem__),
        "ours_over_its_best": summary(
            [seconds / one["ours_s"] for seconds, one in zip(best, measured, strict=True)]
        ),
        "peak_memory_bytes": max(one["peak"] for one in measured),
        "worker_peak_bytes": max(one["worker_peak"] for one in measured),
        "same_number_of_tokens": all(one["same_count"] for one in measured),
        "goal": "at least 1",
    }


if __name__ == "__main__":
    main()
