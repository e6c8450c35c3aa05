"""Text to train on and text held out must not be the same."""

from __future__ import annotations

import filecmp
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.source import Source
from experiment_utils.errors import UserError


def refuse_same_files(train: Source, val: Source) -> None:
    """Compare the files of the two before anything is made; most differ in size or at once.

    Raises:
        UserError: one of them is in both, under whichever name.
    """
    for held_out in _files(val):
        for file in _files(train):
            if file.stat().st_size == held_out.stat().st_size and filecmp.cmp(file, held_out, shallow=False):
                raise _same(str(file), str(held_out))


def refuse_same_contents(train: dict[str, Any], val: dict[str, Any]) -> None:
    """As `refuse_same_files`, by the manifests: finds a text that is compressed in one of them too."""
    contents = {source["content_hash"]: source["path"] for source in train["sources"]}
    for source in val["sources"]:
        if source["content_hash"] in contents:
            raise _same(contents[source["content_hash"]], source["path"])


def _files(source: Source) -> list[Path]:
    parts = map(unwrapped, source.parts if isinstance(source, Inputs) else [source])
    paths = [path for part in parts if (path := getattr(part, "path", None)) is not None]
    return [path for path in paths if path.is_file()]


def _same(file: str, held_out: str) -> UserError:
    return UserError(
        f"--val {held_out} holds the same text as {file}, so a model would be tested on what it was trained "
        "on. Hold another text out, or leave --val away: then the last part of the text is held out when a "
        "run reads it (dataset.val_fraction)",
        code="val-is-train",
    )
