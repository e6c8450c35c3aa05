"""Tokenizer of a run: the configured one, or its copy in the token set."""

from __future__ import annotations

import logging

from conf import schema
from data_loading.find.locate import DatasetFiles, places_at
from data_loading.tokenizers.load import load_tokenizer
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tiktoken_names import PREFIX as TIKTOKEN
from data_loading.tokenizers.tokenizer import Tokenizer, TokenizerNotFound
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

_log = logging.getLogger("data_loading")


def tokenizer_for(spec: schema.Tokenizer, place: DatasetFiles) -> Tokenizer:
    """Return the configured tokenizer; if it is not found, its copy in the token set.

    For encodings of tiktoken the copy comes first: a download of their ranks can take minutes to fail without
    a network.

    Raises:
        UserError: found nowhere, or broken.
    """
    if spec.path is None and (spec.repo or "").startswith(TIKTOKEN):
        return _copy_in_set(spec, place) or load_tokenizer(spec)
    try:
        return load_tokenizer(spec)
    except TokenizerNotFound:
        copy = _copy_in_set(spec, place)
        if copy is None:
            raise
        _log.info("tokenizer %s: taken from %s, found nowhere else", copy.name, place.tokens)
        return copy


def tokenizer_of_set(path: str) -> list[str]:
    """Overrides for the tokenizer of the token set that `dataset.path` means, if it is one set.

    Empty if nothing is tokenized there, or with GPT-2's tokenizer, the default of `dataset=text`.
    """
    try:
        places = places_at(path)
        if len(places) != 1 or not places[0].is_tokenized:
            return []
        files = SetFiles(places[0].tokens)
        manifest = read_manifest(files.tokens)
    except UserError:  # the run reports it
        return []
    name = manifest["tokenizer"]["name"] if manifest else "gpt2"
    if name in ("gpt2", "openai-community/gpt2"):
        return []
    if name in ("bytes", "ids"):
        return [f"tokenizer={name}"]
    is_kept = holds_tokenizer(files.tokenizer)
    return ["tokenizer=custom", f"tokenizer.path={files.tokenizer}"] if is_kept else []


def _copy_in_set(spec: schema.Tokenizer, place: DatasetFiles) -> Tokenizer | None:
    files = SetFiles(place.tokens)
    manifest = read_manifest(files.tokens) if spec.path is None and place.is_tokenized else None
    if manifest is None or manifest["tokenizer"]["name"] not in (spec.name, spec.repo):
        return None
    name = manifest["tokenizer"]["name"]
    return read_tokenizer(files.tokenizer, name) if holds_tokenizer(files.tokenizer) else None
