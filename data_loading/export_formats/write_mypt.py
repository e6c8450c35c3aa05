"""Write MyPT's shards and JSON files (`read_mypt.py`).

A shard is drawn without regard to its size when MyPT trains, so shards are of even size. Without
`special_token_encoder` in tokenizer_state.json MyPT adds its own special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from data_loading.export_formats.contents import Contents
from data_loading.export_formats.export_files import ExportWriter, even_sizes, write_parts
from data_loading.export_formats.exporter import Format
from data_loading.import_formats.read_mypt import DTYPE, METADATA, STATE, MyPT
from data_loading.tokenizers.tokenizer import Tokenizer

TOKENS_PER_SHARD = 10**7
MODEL_IDS = 50_304
"""Rows of the vocabulary of every model of MyPT that is not of characters: GPT-2's, rounded up."""


class MyPTFormat(Format):
    """MyPT: shards of train and of val, numbered through."""

    name = "mypt"
    has_val = True
    kind = MyPT()

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= MODEL_IDS:
            return None
        has = f"tokenizer {tokenizer.name} has {tokenizer.vocab_size:,}"
        return f"MyPT's models have {MODEL_IDS:,} ids, and {has}"

    def notes(self, contents: Contents) -> Iterator[str]:
        if not contents.is_gpt2:
            yield (
                f"MyPT trains on these ids, but turns only GPT-2's and characters into text: "
                f"{STATE} says {contents.tokenizer['name']}, with which it cannot generate"
            )

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        shards: dict[str, int] = {}
        for name in ("train", "val"):
            split, number = contents.splits[name], sum(shards.values())
            sizes = even_sizes(len(split), TOKENS_PER_SHARD)
            parts = [(f"{name}/shard_{number + i:05d}.bin", size) for i, size in enumerate(sizes)]
            write_parts(writer, parts, self.stream(split), DTYPE)
            shards[name] = len(sizes)
        for file_name, value in ((STATE, _state(contents)), (METADATA, _metadata(contents, shards))):
            with writer.file(file_name) as file:
                file.write(json.dumps(value, indent=2).encode())


def _state(contents: Contents) -> dict[str, Any]:
    """Return the tokenizer as MyPT saves it; one that it lacks has its name and content hash."""
    tokenizer = contents.tokenizer
    other = f"{tokenizer['name']} {tokenizer['content_hash'][:12]}"
    return {
        "token_kind": "gpt2" if contents.is_gpt2 else other,
        "chars": None,
        "base_vocab_size": tokenizer["vocab_size"],
        "model_vocab_size": MODEL_IDS,
    }


def _metadata(contents: Contents, shards: dict[str, int]) -> dict[str, Any]:
    sets = {str(split.tokens.path): split.tokens for split in contents.splits.values()}
    return {
        "total_tokens": sum(map(len, contents.splits.values())),
        "total_shards": sum(shards.values()),
        "train_shards": shards["train"],
        "val_shards": shards["val"],
        "tokens_per_shard": TOKENS_PER_SHARD,
        "tokenization": _state(contents)["token_kind"],
        "vocab_size": MODEL_IDS,
        "input_files": [
            source["path"] for found in sets.values() for source in (found.manifest or {}).get("sources", [])
        ],
    }


FORMAT = MyPTFormat()
