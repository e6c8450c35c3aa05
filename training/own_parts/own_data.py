"""Datasets and tokenizers of the user's, written once as files: JSON lines, tokenizer.json.

Contracts: a dataset is a generator `FUNCTION(options)` of documents, each a str. A tokenizer is a function
`FUNCTION(options)` that returns a `tokenizers.Tokenizer`, whose end of a document is one of its special
tokens (`<|endoftext|>`, `</s>`, `[EOS]`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.load import code_of, options_of
from conf.own_parts.use import use_plugins
from conf.parts_table import Part, parts, place_of
from data_loading.text_io.file_names import DEFAULT_FOLDER
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from training.attempt.code_version import digest
from training.attempt.plugin_copies import hash_of


def with_own_data(config: Config, make: Callable[[Config, Part, Path], None]) -> Config:
    """The configuration with a dataset or tokenizer of the user's as the files that it was written to.

    Args:
        make: writes the file of a part that is missing.

    Raises:
        UserError: the plugin cannot be used; names FILE:LINE.
    """
    if not config.plugins:
        return config
    use_plugins(config.plugins, around=False)
    for part in parts("dataset"):
        if config.dataset.source == part.name:
            place = _place(config, part, ".jsonl")
            _make_once(config, part, place, make)
            dataset = dataclasses.replace(config.dataset, source="text", path=str(place))
            config = dataclasses.replace(config, dataset=dataset)
    for part in parts("tokenizer"):
        if config.tokenizer.name == part.name and config.tokenizer.path is None:
            place = _place(config, part, "-tokenizer")
            _make_once(config, part, place / "tokenizer.json", make)
            tokenizer = dataclasses.replace(config.tokenizer, path=str(place))
            config = dataclasses.replace(config, tokenizer=tokenizer)
    return config


def _place(config: Config, part: Part, ending: str) -> Path:
    """Path of its files, another one for other code and other options."""
    content = [hash_of(place_of(part.plugin)), part.name, config.own.get(part.name, {})]
    return DEFAULT_FOLDER / f"{part.name}-{digest(json.dumps(content, sort_keys=True).encode())[:8]}{ending}"


def _make_once(config: Config, part: Part, place: Path, make: Callable[[Config, Part, Path], None]) -> None:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        make(config, part, place.absolute())


def write_part(config: Config, part: Part, place: Path) -> None:
    """Write the documents of a dataset, or the tokenizer.json of a tokenizer.

    Raises:
        UserError: the user's function fails, or returns something else; names FILE:LINE.
    """
    code, options = code_of(part.kind, part.name).code, options_of(config, part)
    if part.kind == "tokenizer":
        _write_tokenizer(part, called(part, code, options), place)
    else:
        called(part, _write_documents, part, code, options, place)


def _write_tokenizer(part: Part, tokenizer: Any, place: Path) -> None:
    to_str = getattr(tokenizer, "to_str", None)
    if to_str is None:
        what = f"tokenizer {part.name} returned {type(tokenizer).__name__}; expected a tokenizers.Tokenizer"
        raise UserError(Problem(part.place, what, "no-tokenizer"))
    atomic_files.write_text(place, to_str())


def _write_documents(part: Part, code: Any, options: Any, place: Path) -> None:
    count = 0
    with atomic_files.atomic_file(place, "w") as file:
        for document in code(options):
            if not isinstance(document, str):
                what = f"dataset {part.name}: document {count} is {type(document).__name__}; expected str"
                raise UserError(Problem(part.place, what, "document-no-text"))
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            count += 1
        if not count:
            raise UserError(Problem(part.place, f"dataset {part.name} yields no document", "dataset-empty"))
