"""Safe cuts at the ends of lines.

Before a line feed (0x0A), behind a word as before a space,

- for GPT-2's pattern, to which both are whitespace, if nothing is put before a text;
- if pieces end at all whitespace, which is dropped (BERT);
- if Metaspace makes pieces and the normalizer makes a space of the line feed (the tables of T5 and XLM-R);
- if one piece spans a whole text, but the line feed has a token of its own, or that of its byte, which
  no merge takes together with another character, and the text gets no mark at its start.

The patterns of cl100k and o200k allow a cut behind a line feed too, before a character that is no
whitespace (nor "/", which matters for o200k). None of their alternatives matches a line feed
and after it anything but whitespace and "/". The whitespace before the cut ends in a line feed, and so
is taken to its end by `[\\r\\n]*` or `\\s*[\\r\\n]+`, which do not look ahead, in the whole as in the part;
at the end of a part tiktoken's cl100k takes the same by `\\s+\\z`.
"""

from __future__ import annotations

from typing import Any

from data_loading.tokenizers.cutting.normalizers import normalized
from data_loading.tokenizers.cutting.split_patterns import GPT2_PATTERN, KNOWN_PATTERNS

SPLIT_AT_WHITESPACE = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")
"""Pre-tokenizers that end a piece at each whitespace and drop it."""


def splits_at_line_feed(
    definition: dict[str, Any],
    splitter: dict[str, Any] | None,
    steps: list[dict[str, Any]],
    *,
    prepends: bool,
) -> bool:
    """Whether a line feed behind a word is always a border, and a text that begins with one gets no prefix.

    No normalizer known here looks at the neighbours of a line feed, so one example shows the result for all.
    """
    becomes = normalized(definition, "a\nb")
    if splitter is None:
        unmarked = not prepends and all(
            step["type"] != "Metaspace" or step.get("prepend_scheme") == "never" for step in steps
        )
        return unmarked and becomes == "a\nb" and _line_feed_is_alone(definition["model"])
    if splitter["type"] == "Metaspace":
        return becomes == "a b"  # else it would be inside a piece, and get a mark at the start
    if any(step["type"] == "Metaspace" and step.get("prepend_scheme") == "first" for step in steps):
        return False  # behind the splitter it marks what begins a text, and only that
    plain = splitter["type"] == "ByteLevel" and not splitter.get("add_prefix_space", True)
    of_gpt2 = splitter["type"] == "Split" and splitter["pattern"]["Regex"] == GPT2_PATTERN
    is_border = plain or of_gpt2 or splitter["type"] in SPLIT_AT_WHITESPACE
    return is_border and becomes in ("a\nb", "a b")


def _line_feed_is_alone(model: dict[str, Any]) -> bool:
    """Whether no merge joins the line feed with another character.

    It has a token of its own or that of its byte, so unknown characters are not fused across it either.
    """
    vocab, byte = model["vocab"], "<0x0A>"
    if any(token.strip("\n") for token in vocab if "\n" in token):
        return False
    if "\n" in vocab:
        return True
    return falls_back_to_bytes(model) and not any(
        byte in (pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]
    )


def falls_back_to_bytes(model: dict[str, Any]) -> bool:
    """Whether a model encodes unknown characters by the tokens of their bytes."""
    return bool(model.get("byte_fallback")) and all(
        f"<0x{byte:02X}>" in model["vocab"] for byte in range(256)
    )


def splits_behind_line_feed(steps: list[dict[str, Any]], added: list[dict[str, Any]]) -> bool:
    """Whether a line is divided alike at the start of a text: no prefix, no token that looks back."""
    for step in steps:
        known = step["type"] == "Split" and step["pattern"].get("Regex") in KNOWN_PATTERNS[1:]
        plain = step["type"] == "ByteLevel" and not step.get("add_prefix_space", True)
        if not (
            known or step["type"] in ("Digits", "Punctuation") or (plain and not step.get("use_regex", True))
        ):
            return False
    if any("\n" in token["content"] for token in added):
        return False
    return not any(
        token.get("lstrip") or token.get("single_word") for token in added if not token.get("special")
    )
