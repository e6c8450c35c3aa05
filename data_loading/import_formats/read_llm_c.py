"""Files of llm.c: a header of 256 int32, then ids; the layout is that of `formats/llm_c.py`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from data_loading.export_formats.exporter import NotThisFormat
from data_loading.export_formats.write_llm_c import HEADER_BYTES, INT, KINDS, read_header
from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout, begins
from data_loading.import_formats.numbered import missing_numbers

_NAME = re.compile(r"(?:.*?_)?(train|val)(?:_(\d+))?\.bin")


class LlmC(Kind):
    name = "llm.c"

    def sign(self, path: Path) -> str | None:
        for file in _files(path):
            if _magic(file) in [kind.magic for kind in KINDS]:
                return f"{file.name} begins with {_magic(file)}"
        return None

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        files, parts = _files(path), {}
        named = {
            name: [f for f in files if (m := _NAME.fullmatch(f.name)) and m[1] == name]
            for name in ("train", "val")
        }
        if path.is_dir() and named["train"]:
            parts = {name: self._layout(path, found) for name, found in named.items() if found}
        return parts if len(parts) > 1 else {"all": parts.get("train") or self._layout(path, files)}

    def _layout(self, path: Path, files: list[Path]) -> Layout:
        gap = missing_numbers([m[2] for f in files if (m := _NAME.fullmatch(f.name)) and m[2]])
        if gap:
            raise self.damaged(path, f"of files {files[0].name} to {files[-1].name} number {gap} is missing")
        try:
            kinds = {read_header(file)[0] for file in files}
        except NotThisFormat as error:
            raise self.damaged(path, str(error)) from None
        if len(kinds) > 1:
            raise self.damaged(path, "its files are of both kinds, GPT-2's and Llama 3's")
        kind = kinds.pop()
        tokens = Runs.of_files(kind.dtype, files, HEADER_BYTES)
        return Layout(tokens, None, tuple(files), begin_ids=(kind.before,))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(file for file in path.glob("*.bin") if file.is_file())


def _magic(path: Path) -> int | None:
    found = begins(path, INT.itemsize)
    return int(np.frombuffer(found, INT)[0]) if len(found) == INT.itemsize else None
