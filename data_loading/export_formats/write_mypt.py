"""MyPT: train/shard_00000.bin ..., val/..., uint32 without a header, and two JSON files.

Source: github.com/chberclaz/MyPT, scripts/data_prep/prepare_dataset.py (writer: 10^7 tokens a shard,
numbered through with val last, the keys of dataset_metadata.json), core/tokenizer.py (get_state and
set_state: the keys of tokenizer_state.json; without `special_token_encoder` it adds its own special
tokens) and core/data_loader.py with train.py (readers: every .bin in train/ and val/). A shard is drawn
without regard to its size when it trains, so shards are of even size here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.export_formats.contents import Contents, Joined
from data_loading.export_formats.export_files import ExportWriter, even_sizes, write_parts
from data_loading.export_formats.exporter import Format, NotThisFormat, Reading, count, mapped
from data_loading.tokenizers.tokenizer import Tokenizer

DTYPE = np.dtype("<u4")
TOKENS_PER_SHARD = 10**7
MODEL_IDS = 50_304
"""Rows of the vocabulary of every model of MyPT that is not of characters: GPT-2's, rounded up."""


class MyPT(Format):
    name = "mypt"
    has_val = True

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= MODEL_IDS:
            return None
        has = f"tokenizer {tokenizer.name} has {tokenizer.vocab_size:,}"
        return f"MyPT's models have {MODEL_IDS:,} ids, and {has}"

    def notes(self, contents: Contents) -> Iterator[str]:
        if not contents.is_gpt2:
            yield (
                f"MyPT trains on these ids, but turns only GPT-2's and characters into text: "
                f"tokenizer_state.json says {contents.tokenizer['name']}, with which it cannot generate"
            )

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        shards: dict[str, int] = {}
        for name in ("train", "val"):
            split, number = contents.splits[name], sum(shards.values())
            sizes = even_sizes(len(split), TOKENS_PER_SHARD)
            parts = [(f"{name}/shard_{number + i:05d}.bin", size) for i, size in enumerate(sizes)]
            write_parts(writer, parts, self.stream(split), DTYPE)
            shards[name] = len(sizes)
        for file_name, value in (
            ("tokenizer_state.json", _state(contents)),
            ("dataset_metadata.json", _metadata(contents, shards)),
        ):
            with writer.file(file_name) as file:
                file.write(json.dumps(value, indent=2).encode())

    def read(self, folder: Path) -> Reading:
        found = {}
        for name in ("train", "val"):
            paths = sorted((folder / name).glob("*.bin"))
            if not paths:
                raise NotThisFormat(f"there is no .bin in {name}/")
            found[name] = Joined([count(path, DTYPE) for path in paths], DTYPE, partial(_open, paths))
        state = _object(folder / "tokenizer_state.json")
        if not isinstance(state.get("token_kind"), str):
            raise NotThisFormat("tokenizer_state.json has no token_kind")
        said, there = (
            _object(folder / "dataset_metadata.json").get("total_tokens"),
            sum(map(len, found.values())),
        )
        if said != there:
            raise NotThisFormat(f"the shards have {there:,} tokens, dataset_metadata.json says {said}")
        return Reading(dict(found))


def _state(contents: Contents) -> dict[str, Any]:
    """As MyPT saves it; a tokenizer that it lacks is told by name and content, never by a name of its own."""
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


def _open(paths: Sequence[Path], number: int) -> np.ndarray:
    return mapped(paths[number], DTYPE)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotThisFormat(f"{path.name} is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise NotThisFormat(f"{path.name} is no JSON object")
    return value


FORMAT = MyPT()
