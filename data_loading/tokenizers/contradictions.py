"""Log lines about files of a tokenizer that disagree. Ids are those of tokenizer.json.

transformers also reads tokenizer_config.json, and lets some of its keys change those of tokenizer.json.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from data_loading.tokenizers.cutting.cuts import steps_of
from data_loading.tokenizers.tokenizer import END_OF_TEXT_NAMES, vocabulary

log = logging.getLogger("data_loading")

_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")
_SHOWN = 5
_logged: set[str] = set()
"""Lines that this process has logged."""


def log_contradictions(
    name: str, definition: dict[str, Any], config: dict[str, Any], special_map: dict[str, Any]
) -> None:
    """Log each disagreement once a process.

    Args:
        name: Name of the tokenizer.
        definition: The parsed tokenizer.json.
        config: The parsed tokenizer_config.json, empty where there is none.
        special_map: The parsed special_tokens_map.json, empty where there is none.
    """
    for line in contradictions(definition, config, special_map):
        whole = f"tokenizer {name}: {line}"
        if whole not in _logged:
            _logged.add(whole)
            log.warning("%s", whole)


def contradictions(
    definition: dict[str, Any], config: dict[str, Any], special_map: dict[str, Any]
) -> Iterator[str]:
    """One line for each disagreement."""
    cut = definition.get("truncation")
    if isinstance(cut, dict):
        yield (
            f"tokenizer.json cuts a text after {cut.get('max_length')} tokens (truncation): left out, "
            "documents are encoded whole"
        )
    for key, here in _settings(definition).items():
        said = config.get(key)
        if isinstance(said, bool) and said != here:
            yield (
                f"tokenizer_config.json says {key}={str(said).lower()}, tokenizer.json "
                f"{str(here).lower()}: ids are those of tokenizer.json, and transformers may give others"
            )
    yield from _added(definition, config)
    yield from _end_of_text(vocabulary(definition), config, special_map)


def _settings(definition: dict[str, Any]) -> dict[str, bool]:
    """The keys of tokenizer.json that tokenizer_config.json can set as well."""
    found: dict[str, bool] = {}
    normalizers = steps_of(definition.get("normalizer"), "normalizers")
    bert = next((step for step in normalizers if step.get("type") == "BertNormalizer"), None)
    lowers = any(step.get("type") == "Lowercase" for step in normalizers)
    found["do_lower_case"] = lowers if bert is None else bool(bert.get("lowercase", True))
    if bert is not None:
        strips = bert.get("strip_accents")
        found["strip_accents"] = found["do_lower_case"] if strips is None else bool(strips)
        found["tokenize_chinese_chars"] = bool(bert.get("handle_chinese_chars", True))
    prefixes = [
        prefix
        for step in [*steps_of(definition.get("pre_tokenizer"), "pretokenizers"), *normalizers]
        if (prefix := _prefix_space(step)) is not None
    ]
    if prefixes:
        found["add_prefix_space"] = any(prefixes)
    return found


def _prefix_space(step: dict[str, Any]) -> bool | None:
    """Whether a step puts a space before a text; None for a step of another kind."""
    if step.get("type") == "Prepend":
        return True
    if step.get("type") == "ByteLevel":
        return bool(step.get("add_prefix_space", True))
    if step.get("type") == "Metaspace":
        return step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space") is not False
    return None


def _added(definition: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    """Lines about tokens of added_tokens_decoder that tokenizer.json lacks, or has with other flags."""
    decoder = config.get("added_tokens_decoder")
    if not isinstance(decoder, dict):
        return
    ids = vocabulary(definition)
    here = {token["content"]: token for token in definition.get("added_tokens") or []}
    absent, other_ids, other_flags = [], [], []
    for number, token in decoder.items():
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not str(number).isdigit():
            continue
        if content not in ids:
            absent.append(f"{content!r} ({number})")
        elif ids[content] != int(number):
            other_ids.append(f"{content!r} ({number}, here {ids[content]})")
        elif any(
            flag in token and bool(here.get(content, {}).get(flag, False)) != bool(token[flag])
            for flag in (_FLAGS if content in here else ())
        ):
            other_flags.append(repr(content))
    size = max(ids.values()) + 1
    if absent:
        yield (
            f"tokenizer_config.json adds {_some(absent)}, which tokenizer.json lacks: left out, the "
            f"vocabulary has {size:,} ids"
        )
    if other_ids:
        yield f"tokenizer_config.json has other ids than tokenizer.json for {_some(other_ids)}: ignored"
    if other_flags:
        yield (
            f"tokenizer_config.json describes {_some(other_flags)} differently from tokenizer.json "
            f"({', '.join(_FLAGS)}): tokenizer.json is used"
        )


def _end_of_text(ids: dict[str, int], config: dict[str, Any], special_map: dict[str, Any]) -> Iterator[str]:
    """Lines about the id that ends documents, if the files do not agree on it."""
    named = {
        file: content
        for file, found in (("tokenizer_config.json", config), ("special_tokens_map.json", special_map))
        if (content := _content(found.get("eos_token"))) is not None
    }
    known = [content for content in named.values() if content in ids]
    usual = [content for content in END_OF_TEXT_NAMES if content in ids]
    taken = next(iter([*known, *usual]), None)
    end = "documents have no end" if taken is None else f"documents end with {taken!r} ({ids[taken]})"
    begins = _content(config.get("bos_token"))
    if begins is not None and begins not in ids:
        yield f"tokenizer_config.json names the bos_token {begins!r}, which tokenizer.json lacks"
    for file, content in named.items():
        if content not in ids:
            yield f"{file} names the eos_token {content!r}, which tokenizer.json lacks: {end} (--eos TOKEN)"
    if len(set(known)) > 1:
        yield f"{' and '.join(named)} name different tokens as eos_token: {end} (--eos TOKEN)"
    if not named and len(usual) > 1:
        there = ", ".join(map(repr, usual))
        yield f"no file names an eos_token, and {there} are there: {end} (--eos TOKEN)"


def _content(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
