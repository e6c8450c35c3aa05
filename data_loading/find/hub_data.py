"""Data of a dataset of the hub as a configuration describes it: the set made of it, or the stream."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from conf import schema
from data_loading.dataset.split_data import Data
from data_loading.find.locate import NothingThere, NotTokenized, locate
from data_loading.hub.hub_uri import PREFIX, parse
from data_loading.hub.named_datasets import REGISTRY
from data_loading.hub_stream.hub_stream import HubStream
from data_loading.hub_stream.materializing import materialize, usual_place
from data_loading.tokenizers.load import load_tokenizer, name_of
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import Problem, UserError

_ONLY_OF_SETS = (
    "windows", "documents", "stride", "val_path", "val_fraction", "test_fraction", "test_tokens", "reader",
    "max_resident", "verify", "ranks", "document_separator", "encoding", "errors", "dtype",
)  # fmt: skip
"""Keys for tokens in files, or for texts."""


class StreamTokens(Tokens):
    """Tokens of a stream, none of which is on this machine."""

    def __init__(self, name: str, vocab_size: int, fingerprint: str) -> None:
        self.tokens, self.documents = np.empty(0, "<u4"), None
        self.vocab_size, self.fingerprint, self._name = vocab_size, fingerprint, name

    @property
    def name(self) -> str:
        return self._name


class StreamData(Data):
    """Data whose train split is a stream. val is read at its first use."""

    is_counted = False

    def __init__(self, stream: HubStream) -> None:
        tokenizer = stream.tokenizer
        values = {
            "stream": stream,
            "train": StreamTokens(str(stream.name), tokenizer.vocab_size, stream.data_fingerprint),
            "train_ranges": (),
            "vocab_size": tokenizer.vocab_size,
            "eot_id": tokenizer.eot_id,
            "tokenizer_name": tokenizer.name,
            "fingerprint": hashlib.sha256(f"{stream.data_fingerprint} streamed".encode()).hexdigest(),
            "test_ranges": (),
            "tokenizer": tokenizer,
        }
        self.__dict__.update(values)

    stream: HubStream

    @cached_property
    def val(self) -> Tokens:
        """Held-out tokens."""
        return self.stream.held_out if self.stream.val_tokens else self.train

    @cached_property
    def val_ranges(self) -> tuple[range, ...]:
        """All of them."""
        return (range(self.val.n_tokens),) if self.stream.val_tokens else ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have tokens; nothing is read for them."""
        return ("train", "val") if self.stream.val_tokens else ("train",)

    def describe(self) -> dict[str, Any]:
        """Return facts for run.json and for people; None for those known at the end of the stream."""
        unknown = ("file_bytes", "tokens", "documents", "train_tokens", "val_tokens")
        return {
            "path": self.train.name,
            "val_path": f"{self.stream.name} {self.stream.val_split}" if self.stream.val_split else None,
            **dict.fromkeys(unknown),
            "dtype": None,
            "test_tokens": 0,
            "tokenizer": self.tokenizer_name,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "sets": [self.stream.revision],
        }

    def train_stream(self, of_run: schema.Dataset, seq_len: int, seed: int) -> HubStream:
        """Return the train stream of a run."""
        return self.stream.cut(
            seq_len,
            seed,
            order=of_run.order,
            shift=of_run.shift,
            buffer_windows=of_run.buffer_windows,
        )


def settle_hub(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
    versions: Sequence[str] = (),
) -> Data | schema.Dataset:
    """Return the stream, or the configuration of the token set that was made of the dataset.

    Args:
        dataset: Its configuration.
        tokenizer: Of the run.
        tokenize: Make a set that is missing, if the configuration asks for one.
        log: Takes lines about that.
        versions: The commit that a run began with.

    Raises:
        NotTokenized: the configuration asks for a set, and it is not to be made now.
        UserError: the hub cannot be read, or an option is not for a stream.
    """
    if dataset.path is None:
        try:
            locate(dataset)
            return replace(dataset, source="text")
        except NothingThere:
            if dataset.name not in REGISTRY:
                raise UserError(
                    f"dataset={dataset.name}: expected dataset.path=hf://ORG/NAME, or one of "
                    f"{', '.join(REGISTRY)}",
                    code="hub-path-missing",
                ) from None
    elif not dataset.path.startswith(PREFIX):
        return replace(dataset, source="text")
    source = dataset.path or f"{PREFIX}{dataset.name}"
    if dataset.materialize:
        return _materialized(source, dataset, tokenizer, tokenize=tokenize, log=log)
    _check_streamable(source, dataset)
    stream = HubStream(
        source,
        tokenizer=load_tokenizer(tokenizer),
        split=dataset.hub_split,
        text_field=dataset.text_field,
        val_tokens=dataset.val_tokens,
        revision=versions[0] if versions else None,
    )
    return StreamData(stream)


def _materialized(
    source: str,
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
) -> schema.Dataset:
    place = usual_place(parse(source))
    if not SetFiles(place).exists:
        loaded = load_tokenizer(tokenizer)
        if not (tokenize and dataset.auto_tokenize):
            raise NotTokenized(source, None, _command(source, dataset, tokenizer), loaded.vocab_size)
        materialize(
            source,
            loaded,
            place,
            split=dataset.hub_split,
            text_field=dataset.text_field,
            max_tokens=dataset.materialize_tokens,
            log=log,
        )
    made = (read_manifest(place) or {"options": {}})["options"].get("max_tokens")
    if made != dataset.materialize_tokens:
        raise UserError(
            Problem(
                "dataset.materialize_tokens",
                f"{place} was made with max_tokens {_count(made)}, and this run has "
                f"{_count(dataset.materialize_tokens)}. Use the same number, or make it again: "
                f"{_command(source, dataset, tokenizer)} --overwrite",
                code="materialize-tokens-differ",
            )
        )
    return replace(dataset, source="text", path=str(place))


def _count(tokens: int | None) -> str:
    return "null (all)" if tokens is None else f"{tokens:,}"


def _command(source: str, dataset: schema.Dataset, tokenizer: schema.Tokenizer) -> str:
    """Return the command that makes the set."""
    words = ["python", "-m", "data_loading", "materialize", source]
    words += ["--tokenizer", tokenizer.path or name_of(tokenizer)]
    for flag, value, default in (
        ("--split", dataset.hub_split, "train"),
        ("--text-field", dataset.text_field, None),
        ("--max-tokens", dataset.materialize_tokens, None),
    ):
        if value != default:
            words += [flag, str(value)]
    return shlex.join(words)


def _check_streamable(source: str, dataset: schema.Dataset) -> None:
    default = schema.Dataset()
    problems = [
        Problem(
            f"dataset.{name}",
            f"{source} is streamed, and this is for tokens in files. Remove it, or make a token set: "
            "dataset.materialize=true",
            code="streamed-has-no-option",
        )
        for name in _ONLY_OF_SETS
        if getattr(dataset, name) != getattr(default, name)
    ]
    if dataset.order == "shuffled_blocks":
        problems.append(
            Problem(
                "dataset.order",
                f"{source} is streamed: choices are shuffled, sequential",
                code="streamed-order",
            )
        )
    if problems:
        raise UserError(*problems)
