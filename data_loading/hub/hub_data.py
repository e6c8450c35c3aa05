"""From the configuration of a dataset of the hub to its data: a set made of it, or the stream."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from conf import schema
from data_loading.find.locate import NothingThere, locate
from data_loading.find.prepared_data import Data, NotTokenized
from data_loading.hub.hub_uri import PREFIX, parse
from data_loading.hub.materializing import materialize, usual_place
from data_loading.hub.named_datasets import REGISTRY
from data_loading.hub.stream import HubStream
from data_loading.tokenizers.load import load_tokenizer, name_of
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import Problem, UserError

_ONLY_OF_SETS = (
    "windows", "documents", "stride", "val_path", "val_fraction", "test_fraction", "test_tokens", "reader",
    "max_resident", "verify", "ranks", "document_separator", "encoding", "errors", "dtype",
)  # fmt: skip
"""Keys that say something of tokens in files, or of texts."""


class StreamTokens(Tokens):
    """The tokens of a stream, as far as they are here: none."""

    def __init__(self, name: str, vocab_size: int, fingerprint: str) -> None:
        self.tokens, self.documents = np.empty(0, "<u4"), None
        self.vocab_size, self.fingerprint, self._name = vocab_size, fingerprint, name

    @property
    def name(self) -> str:
        return self._name


class StreamData(Data):
    """A run's data where train is a stream. val is read when it is first asked for."""

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
        return self.stream.held_out

    @cached_property
    def val_ranges(self) -> tuple[range, ...]:
        return (range(self.val.n_tokens),)

    def describe(self) -> dict[str, Any]:
        """Facts for run.json and for people; None where only the end of the stream would tell."""
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
        """What a run trains on."""
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
    """The stream, or the configuration of the token set that stands for it here.

    versions: the commit that a run began with.

    Raises:
        NotTokenized: there is to be a token set, and it is not to be made now.
        UserError: as `HubStream`, `materialize`; or options that a stream has not.
    """
    if dataset.path is None:
        try:
            locate(dataset)
            return replace(dataset, source="text")
        except NothingThere:
            if dataset.name not in REGISTRY:
                raise UserError(
                    f"dataset={dataset.name}: say which with dataset.path=hf://ORG/NAME, or take one of "
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
                f"{place} was made with max_tokens {_count(made)}, and this run says "
                f"{_count(dataset.materialize_tokens)}. Give what it was made with, or make it anew: "
                f"{_command(source, dataset, tokenizer)} --overwrite",
                code="materialize-tokens-differ",
            )
        )
    return replace(dataset, source="text", path=str(place))


def _count(tokens: int | None) -> str:
    return "null (all)" if tokens is None else f"{tokens:,}"


def _command(source: str, dataset: schema.Dataset, tokenizer: schema.Tokenizer) -> str:
    """What makes the set by itself."""
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
            f"{source} is streamed, and a stream has none of it. Take it away, or make a token set of it: "
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
