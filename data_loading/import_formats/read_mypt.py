"""MyPT: train/shard_00000.bin ..., val/..., uint32 without a header, and two JSON files.

Source: github.com/chberclaz/MyPT, scripts/data_prep/prepare_dataset.py (writer: 10^7 tokens a shard,
numbered through with val last, the keys of dataset_metadata.json), core/tokenizer.py (get_state and
set_state: the keys of tokenizer_state.json) and core/data_loader.py with train.py (readers: every .bin in
train/ and val/).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, SplitLayout, count_values, first_gap, read_object

DTYPE = np.dtype("<u4")
STATE, METADATA = "tokenizer_state.json", "dataset_metadata.json"
_NUMBER = re.compile(r"\D*(\d+)\.bin")


class MyPT(Kind):
    """A folder with train/, val/ and the two JSON files."""

    name = "MyPT"

    def sign(self, path: Path) -> str | None:
        found = [name for name in (METADATA, STATE) if (path / name).is_file()]
        return f"{' and '.join(found)} next to train/" if found and (path / "train").is_dir() else None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        state, metadata = read_object(path / STATE), read_object(path / METADATA)
        if state is None or metadata is None:
            name = STATE if state is None else METADATA
            raise self.damaged(path, f"its {name} is missing or no JSON object")
        files = {split: sorted((path / split).glob("*.bin")) for split in ("train", "val")}
        if not files["train"]:
            raise self.damaged(path, "there is no .bin in train/")
        if not isinstance(state.get("token_kind"), str):
            raise self.damaged(path, f"{STATE} has no token_kind")
        self._check(path, files, metadata)
        size = state.get("base_vocab_size")
        vocab_size = size if isinstance(size, int) and size > 0 else None
        parts = {
            split: SplitLayout(
                Runs.of_files(DTYPE, found), None, tuple(found), vocab_size, state["token_kind"]
            )
            for split, found in files.items()
            if found
        }
        return parts if len(parts) > 1 else {"all": parts["train"]}

    def _check(self, path: Path, files: dict[str, list[Path]], metadata: dict[str, object]) -> None:
        shards = [file for found in files.values() for file in found]
        try:
            tokens = sum(count_values(file, DTYPE) for file in shards)
        except ValueError as error:
            raise self.damaged(path, str(error)) from None
        gap = first_gap([name[1] for file in shards if (name := _NUMBER.fullmatch(file.name))])
        if gap is not None:
            raise self.damaged(path, f"shard {gap} is missing in train/ and val/")
        for split, found in files.items():
            noted = metadata.get(f"{split}_shards")
            if isinstance(noted, int) and noted != len(found):
                raise self.damaged(path, f"{split}/ has {len(found):,} shards, {METADATA} says {noted:,}")
        noted = metadata.get("total_tokens")
        if noted != tokens:
            raise self.damaged(path, f"its shards have {tokens:,} tokens, {METADATA} says {noted}")
