"""The ids put before and after each document: the tokenizer's own, or those that --bos and --eos choose."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from data_loading.tokenizers.tiktoken import TiktokenTokenizer
from data_loading.tokenizers.tokenizer import BYTES_EOT, END_OF_TEXT, JsonTokenizer, Tokenizer, vocabulary
from experiment_utils.errors import UserError

NONE, AUTO = "none", "auto"
_NAMING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
_SHOWN = 8


def choose_ends(tokenizer: Tokenizer, eos: str | None, bos: str | None) -> Tokenizer:
    """The tokenizer with other ids around documents; itself where they are the ones that it has.

    Args:
        tokenizer: As its files have it.
        eos: A token or an id; `none`: documents have no end; None: the tokenizer's own.
        bos: A token or an id; `auto`: the `bos_token` that the tokenizer's files name; None: nothing.

    Raises:
        UserError: The tokenizer has no such token.
    """
    chosen: dict[str, int | str] = {}
    if eos is not None:
        found = NONE if eos == NONE else _id_of(tokenizer, eos, "--eos")
        if found != (NONE if tokenizer.eot_id is None else tokenizer.eot_id):
            chosen["eos"] = found
    if bos is not None:
        chosen["bos"] = _own_bos(tokenizer) if bos == AUTO else _id_of(tokenizer, bos, "--bos")
    return _with(tokenizer, chosen)


def recorded_ends(tokenizer: Tokenizer, options: dict[str, Any]) -> Tokenizer:
    """The tokenizer with the ids around documents of a manifest's options."""
    return _with(tokenizer, {name: options[name] for name in ("eos", "bos") if name in options})


def notes_on_ends(tokenizer: Tokenizer) -> Iterator[str]:
    """Notes on the ids around documents, one line each."""
    if tokenizer.eot_id is None and not tokenizer.chosen_ends:
        yield (
            f"tokenizer {tokenizer.name} names no end of text: nothing is put between documents. "
            "--eos TOKEN puts an id after each, --bos TOKEN before each"
        )
    added = None
    if tokenizer.bos_id is None:
        added = _added_before(tokenizer) or _named_bos(tokenizer, only_if_added=True)
    if added is not None and added != _text_of(tokenizer, tokenizer.eot_id):
        yield (
            f"tokenizer {tokenizer.name} puts {added!r} before a text where transformers encodes it; "
            "documents have no begin-of-text id here: --bos auto puts it before each"
        )


def _with(tokenizer: Tokenizer, chosen: dict[str, int | str]) -> Tokenizer:
    """Its content hash stays that of its files; the choice is recorded in the options of a set."""
    if not chosen:
        return tokenizer
    changed = copy.copy(tokenizer)
    eos = chosen.get("eos", tokenizer.eot_id)
    changed.__dict__.update(
        content_hash=tokenizer.content_hash,
        eot_id=None if eos == NONE else eos,
        bos_id=chosen.get("bos"),
        chosen_ends=chosen,
    )
    return changed


def _tokens(tokenizer: Tokenizer) -> dict[str, int]:
    if isinstance(tokenizer, JsonTokenizer):
        return vocabulary(tokenizer.definition)
    if isinstance(tokenizer, TiktokenTokenizer):
        return tokenizer.special_tokens
    return {END_OF_TEXT: BYTES_EOT} if tokenizer.name == "bytes" else {}


def _id_of(tokenizer: Tokenizer, given: str, flag: str) -> int:
    """A token's id; digits that are no token are an id."""
    known = _tokens(tokenizer)
    if given.isascii() and given.isdigit():
        if int(given) < tokenizer.vocab_size:
            return int(given)
        most = tokenizer.vocab_size - 1
        raise UserError(
            f"{flag} {given}: tokenizer {tokenizer.name} has the ids 0 to {most:,}",
            code="id-outside-vocabulary",
        )
    if given in known:
        return known[given]
    special = _special(tokenizer)
    more = " ..." if len(special) > _SHOWN else ""
    raise UserError(
        f"{flag} {given}: tokenizer {tokenizer.name} has no such token. Give a token or an id; its special "
        f"tokens: {', '.join(map(repr, special[:_SHOWN])) or 'none'}{more}",
        code="token-unknown",
    )


def _special(tokenizer: Tokenizer) -> list[str]:
    if not isinstance(tokenizer, JsonTokenizer):
        return list(_tokens(tokenizer))
    added = tokenizer.definition.get("added_tokens") or []
    return [token["content"] for token in added if token.get("special")]


def _own_bos(tokenizer: Tokenizer) -> int:
    """The `bos_token` of the tokenizer's files. Raises UserError where none names one."""
    named = _named_bos(tokenizer) or _added_before(tokenizer)
    if named is None:
        raise UserError(
            f"--bos auto: no file of tokenizer {tokenizer.name} names a bos_token. Give the token or its id",
            code="bos-unknown",
        )
    return _id_of(tokenizer, named, "--bos")


def named_bos_id(tokenizer: Tokenizer) -> int | None:
    """The id of the `bos_token` that the tokenizer's files name; None where none does."""
    named = _named_bos(tokenizer) or _added_before(tokenizer)
    return None if named is None else _tokens(tokenizer).get(named)


def _named_bos(tokenizer: Tokenizer, *, only_if_added: bool = False) -> str | None:
    """The `bos_token` of a file. only_if_added: of one that says `add_bos_token`."""
    files = tokenizer.files if isinstance(tokenizer, JsonTokenizer) else ()
    for path in files:
        if path.name in _NAMING_FILES:
            said = json.loads(path.read_text(encoding="utf-8"))
            token = None if only_if_added and said.get("add_bos_token") is not True else said.get("bos_token")
            content = token.get("content") if isinstance(token, dict) else token
            if isinstance(content, str):
                return content
    return None


def _added_before(tokenizer: Tokenizer) -> str | None:
    """The token that the post-processor of a tokenizer.json puts before a text."""
    if not isinstance(tokenizer, JsonTokenizer):
        return None
    step = tokenizer.definition.get("post_processor") or {}
    for one in [step, *(step.get("processors") or [])]:
        first = (one.get("single") or [{}])[0] if one.get("type") == "TemplateProcessing" else {}
        if "SpecialToken" in first:
            return str(first["SpecialToken"]["id"])
    return None


def _text_of(tokenizer: Tokenizer, number: int | None) -> str | None:
    return next((text for text, index in _tokens(tokenizer).items() if index == number), None)
