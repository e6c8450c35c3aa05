"""Shard folders of MyPT: train/shard_00000.bin ..., val/..., with two JSON files (`formats/mypt.py`)."""

from __future__ import annotations

import re
from pathlib import Path

from data_loading.export_formats.exporter import NotThisFormat, count
from data_loading.export_formats.write_mypt import DTYPE
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout, read_object
from data_loading.import_formats.numbered import missing_numbers

_STATE, _METADATA = "tokenizer_state.json", "dataset_metadata.json"
_NUMBER = re.compile(r"\D*(\d+)\.bin")


class MyPT(Kind):
    name = "MyPT"

    def sign(self, path: Path) -> str | None:
        there = [name for name in (_METADATA, _STATE) if (path / name).is_file()]
        return f"{' and '.join(there)} beside train/" if there and (path / "train").is_dir() else None

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        state, metadata = read_object(path / _STATE), read_object(path / _METADATA)
        if state is None or metadata is None:
            name = _STATE if state is None else _METADATA
            raise self.damaged(path, f"its {name} is missing or no JSON object")
        files = {name: sorted((path / name).glob("*.bin")) for name in ("train", "val")}
        if not files["train"]:
            raise self.damaged(path, "there is no .bin in train/")
        self._check(path, files, metadata)
        size, kind = state.get("base_vocab_size"), state.get("token_kind")
        vocab_size = size if isinstance(size, int) and size > 0 else None
        tokenizer = kind if isinstance(kind, str) else None
        parts = {
            name: Layout(Runs.of_files(DTYPE, found), None, tuple(found), vocab_size, tokenizer)
            for name, found in files.items()
            if found
        }
        return parts if len(parts) > 1 else {"all": parts["train"]}

    def _check(self, path: Path, files: dict[str, list[Path]], metadata: dict[str, object]) -> None:
        every = [file for found in files.values() for file in found]
        try:
            there = sum(count(file, DTYPE) for file in every)
        except NotThisFormat as error:
            raise self.damaged(path, str(error)) from None
        numbers = [match[1] for file in every if (match := _NUMBER.fullmatch(file.name))]
        gap = missing_numbers(numbers)
        if gap is not None:
            raise self.damaged(path, f"shard {gap} is missing in train/ and val/")
        for name, found in files.items():
            said = metadata.get(f"{name}_shards")
            if isinstance(said, int) and said != len(found):
                raise self.damaged(path, f"{name}/ has {len(found):,} shards, {_METADATA} says {said:,}")
        if metadata.get("total_tokens") != there:
            raise self.damaged(
                path, f"its shards have {there:,} tokens, {_METADATA} says {metadata.get('total_tokens')}"
            )
