"""Checks of a parsed tokenizer.json before it is used: shapes, and settings that would give wrong ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_loading.tokenizers.byte_level import UTF8_BYTES, byte_letters
from data_loading.tokenizers.cutting.line_feeds import falls_back_to_bytes
from data_loading.tokenizers.cutting.normalizers import normalized, precompiled
from data_loading.tokenizers.tokenizer import FIX, model_type, vocabulary
from experiment_utils.errors import UserError

_MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
_MOST_ID = (1 << 32) - 1


def check_definition(definition: dict[str, Any], path: Path) -> None:
    """Raise UserError for a tokenizer that would give wrong, random or no ids."""
    model = definition.get("model")
    if not isinstance(model, dict) or model_type(definition) not in _MODELS or "vocab" not in model:
        raise UserError(
            f"{path} has no model of a known kind; expected one of {', '.join(_MODELS)}",
            code="tokenizer-model-unknown",
        )
    vocab = model["vocab"]
    _check_entries(vocab, path)
    _check_added(definition, path)
    _check_steps(definition, path)
    ids = vocabulary(definition)
    if len(set(ids.values())) < 2:
        raise UserError(
            f"{path} is an empty tokenizer: it has {len(set(ids.values()))} ids, and a vocabulary needs "
            "at least 2. The file is truncated or was saved without its vocabulary: fetch it again",
            code="tokenizer-empty",
        )
    if model.get("dropout"):
        raise UserError(
            f"{path} has BPE dropout {model['dropout']}: its ids are random. Set it to null",
            code="tokenizer-random",
        )
    if model_type(definition) != "BPE":
        _check_unknown(definition, path)
    _check_loads(definition, path)
    if model_type(definition) == "BPE":
        _check_bpe(definition, path)
    _check_added_ids(definition, path)


def _check_added(definition: dict[str, Any], path: Path) -> None:
    added = definition.get("added_tokens") or []
    for number, token in enumerate(added if isinstance(added, list) else [added], 1):
        found = token if isinstance(token, dict) else {}
        if not isinstance(found.get("content"), str) or not _is_id(found.get("id")):
            raise UserError(
                f"{path}: added token {number} is {json.dumps(token)[:80]}, expected an object with "
                "content (a text) and id (a number). Fetch the file again",
                code="tokenizer-added-invalid",
            )


def _check_added_ids(definition: dict[str, Any], path: Path) -> None:
    """Raise UserError if the library, which numbers added tokens itself, would give other ids."""
    vocab = definition["model"]["vocab"]
    known = vocab if isinstance(vocab, dict) else {piece[0]: index for index, piece in enumerate(vocab)}
    given: dict[str, int] = {}
    most = -1
    for token in definition.get("added_tokens") or []:
        content = token["content"]
        if content in given and given[content] == token["id"]:
            continue
        index = given.get(content, known.get(content, max(most + 1, len(known))))
        if index != token["id"]:
            raise UserError(
                f"{path}: its added token {content!r} has the id {token['id']:,}, and the package tokenizers "
                f"would give it {index:,}, which follows the vocabulary and the tokens before it. Fetch the "
                "file again, or number its added tokens on from the vocabulary",
                code="tokenizer-added-id",
            )
        given[content] = index
        most = most if content in known else index


def _check_steps(definition: dict[str, Any], path: Path) -> None:
    """Raise UserError if the library cannot load the normalizer or the pre-tokenizer, parsed here too."""
    from tokenizers import Tokenizer

    empty = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
    for name in ("normalizer", "pre_tokenizer"):
        if definition.get(name) is None:
            continue
        try:
            _check_tables(definition[name])
            Tokenizer.from_str(json.dumps({**empty, name: definition[name]}))
        except Exception as error:  # tokenizers raises bare Exception
            raise UserError(
                f"{path}: its {name} cannot be loaded ({error}). {FIX}", code="tokenizer-damaged"
            ) from error


def _check_tables(step: Any) -> None:
    """Raise if a table of SentencePiece is bad: the library would end in a panic, which is no Exception."""
    if isinstance(step, list):
        for part in step:
            _check_tables(part)
    elif isinstance(step, dict):
        if step.get("type") == "Precompiled":
            precompiled(step)
        _check_tables(step.get("normalizers"))


def _check_entries(vocab: Any, path: Path) -> None:
    """Raise UserError unless these are tokens with ids, or pieces with scores."""
    if isinstance(vocab, dict):
        wrong = [entry for entry in vocab.items() if not _is_id(entry[1])]
    elif isinstance(vocab, list):
        wrong = [entry for entry in vocab if not _is_scored(entry)]
    else:
        wrong = [vocab]
    if wrong:
        raise UserError(
            f"{path}: its vocabulary has {json.dumps(wrong[0], ensure_ascii=False)[:80]}, expected texts "
            f"with whole numbers from 0 to {_MOST_ID:,} as ids (Unigram: with scores). Fetch the file again",
            code="tokenizer-vocabulary-invalid",
        )


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_ID


def _is_scored(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and type(entry[1]) in (int, float)
    )


def _check_loads(definition: dict[str, Any], path: Path) -> None:
    """Raise UserError if the library cannot load the file without its vocabulary, which takes long."""
    from tokenizers import Tokenizer

    model = definition["model"]
    vocab: Any = {"": 0} if isinstance(model["vocab"], dict) else [["", 0.0]]
    unknown = {"unk_id": 0} if isinstance(model.get("unk_id"), int) else {}
    bare = {**model, "vocab": vocab, **({"merges": []} if "merges" in model else {}), **unknown}
    for token in definition.get("added_tokens") or []:
        if token.get("normalized") and not normalized(definition, token["content"]):
            raise UserError(
                f"{path}: its added token {token['content']!r} is empty once it is normalized, and would end "
                "the package tokenizers in a panic. Remove it from the file, or set its normalized to false",
                code="tokenizer-added-empty",
            )
    try:
        Tokenizer.from_str(json.dumps({**definition, "model": bare}))
    except Exception as error:  # tokenizers raises bare Exception
        raise UserError(f"{path} cannot be loaded ({error}). {FIX}", code="tokenizer-damaged") from error


def _check_unknown(definition: dict[str, Any], path: Path) -> None:
    """Raise UserError for a model without a token for unknown words, at which it would fail."""
    model, kind = definition["model"], model_type(definition)
    unknown = model.get("unk_token")
    has_token = (
        isinstance(model.get("unk_id"), int) and 0 <= model["unk_id"] < len(model["vocab"])
        if kind == "Unigram"
        else isinstance(unknown, str) and unknown in model["vocab"]
    )
    if not has_token:
        raise UserError(
            f"{path}: this {kind} tokenizer has no token for what it does not know, and would fail at the "
            f"first such word. Train it again with one ({'unk_id' if kind == 'Unigram' else 'unk_token'})",
            code="tokenizer-without-unknown",
        )


def _check_bpe(definition: dict[str, Any], path: Path) -> None:
    model = definition["model"]
    vocab = model["vocab"]
    inner = len(model.get("continuing_subword_prefix") or "")
    merges = model.get("merges") or []
    for number, pair in enumerate(merges if isinstance(merges, list) else [merges], 1):
        parts = pair.split(" ") if isinstance(pair, str) else pair
        if not isinstance(parts, list) or [*map(type, parts)] != [str, str]:
            raise UserError(
                f"{path}: merge {number} is {json.dumps(pair, ensure_ascii=False)[:80]}, expected two "
                "tokens. The file is truncated, or was edited: fetch it again",
                code="tokenizer-merge-invalid",
            )
        left, right = parts
        if left not in vocab or right not in vocab or left + right[inner:] not in vocab:
            absent = next(token for token in (left, right, left + right[inner:]) if token not in vocab)
            raise UserError(
                f"{path}: merge {number} ({left!r} {right!r}) needs the token {absent!r}, which the "
                "vocabulary lacks. The files are truncated, or from different tokenizers: fetch them again",
                code="tokenizer-merge-invalid",
            )
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocab:
        raise UserError(
            f"{path}: its unk_token {unknown!r} is not in its vocabulary. The file is truncated, or was "
            "edited",
            code="tokenizer-unknown-missing",
        )
    normalizer = definition.get("normalizer")
    byte_level = "ByteLevel" in json.dumps([definition.get("pre_tokenizer"), normalizer])
    if not byte_level and not falls_back_to_bytes(model) and unknown is None:
        characters = sum(len(token) == 1 for token in vocab)
        raise UserError(
            f"{path} knows {characters:,} characters and would drop all others from the text silently. "
            "Train it again: byte-level (pre_tokenizers.ByteLevel), with byte_fallback, or with an unk_token",
            code="tokenizer-loses-characters",
        )
    if byte_level and unknown is None and (normalizer is None or normalizer["type"] == "ByteLevel"):
        lost = [byte for byte in UTF8_BYTES if byte_letters()[byte] not in vocab]
        if lost:
            raise UserError(
                f"{path} has no token for {len(lost)} of the byte values of UTF-8 (such as "
                f"0x{lost[0]:02x}), and would drop them from the text silently. It is truncated, or "
                "was trained without initial_alphabet=ByteLevel.alphabet()",
                code="tokenizer-loses-bytes",
            )
