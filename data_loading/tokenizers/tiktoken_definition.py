"""Convert an encoding of tiktoken to a tokenizer.json that gives the same ids.

The ranks become the vocabulary of a byte-pair model, in GPT-2's letters for bytes. A token needs one merge,
the last one that makes it out of its own bytes. tiktoken takes the adjacent pair of the lowest rank, the
leftmost of several; a tokenizer.json takes the first merge of its list, at the leftmost place. While two
parts of a token are next to each other in a text, the merges inside it were those of its bytes alone, in the
same order, so that no other pair ever makes it. tiktoken takes a piece that is a token whole, which is
`ignore_merges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Any

from data_loading.tokenizers.byte_level import byte_letters
from data_loading.tokenizers.cutting.split_patterns import (
    CL100K_PATTERN,
    GPT2_PATTERN,
    KNOWN_PATTERNS,
    TIKTOKEN_CL100K_PATTERN,
    TIKTOKEN_R50K_PATTERN,
)
from experiment_utils.errors import UserError

_SPELLED = {TIKTOKEN_R50K_PATTERN: GPT2_PATTERN, TIKTOKEN_CL100K_PATTERN: CL100K_PATTERN}
"""Patterns with possessive quantifiers and `$`, which Oniguruma reads otherwise."""


def tiktoken_definition(
    name: str, pattern: str, ranks: Mapping[bytes, int], parsed: Mapping[str, int]
) -> dict[str, Any]:
    """The parsed tokenizer.json of an encoding.

    Args:
        name: Name of the tokenizer, for the error.
        pattern: The encoding's `pat_str`.
        ranks: Id of each token of text.
        parsed: Id of each special token that becomes its id where a text has it; the others are text.

    Raises:
        UserError: The pattern is none that is known to divide text alike in both libraries.
    """
    regex = _SPELLED.get(pattern, pattern)
    if regex not in KNOWN_PATTERNS:
        raise UserError(
            f"tokenizer {name} divides text by a pattern that is not known to divide it alike outside of the "
            "package tiktoken, so it cannot encode here. Use the tokenizer.json of the same tokenizer "
            "(--tokenizer FOLDER or org/name)",
            code="tiktoken-pattern-unknown",
        )
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, by_bytes]}
    letters = byte_letters()
    vocab = {"".join(letters[byte] for byte in token): rank for token, rank in ranks.items()} | dict(parsed)
    unused = set(range(max(vocab.values(), default=0))).difference(vocab.values())
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **flags} for text, number in parsed.items()],
        "normalizer": None,
        # fastokens is faster by six times where GPT-2's pattern is named so.
        "pre_tokenizer": {**by_bytes, "use_regex": True} if regex == GPT2_PATTERN else steps,
        "post_processor": None,
        "decoder": {**by_bytes, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            # fastokens takes no vocabulary with holes. No text has these, since a space has another letter.
            "vocab": {**vocab, **{f"unused {number}": number for number in unused}},
            "merges": [["".join(letters[byte] for byte in part) for part in pair] for pair in merges(ranks)],
        },
    }


def merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merge that makes each token, in the order of ranks; tokens that no merges make are left out."""
    pairs = (_last_merge(token, ranks) for token in sorted(ranks, key=lambda token: ranks[token]))
    return [pair for pair in pairs if pair is not None]


def _last_merge(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    divided = [(token[:place], token[place:]) for place in range(1, len(token))]
    pairs = [pair for pair in divided if pair[0] in ranks and pair[1] in ranks]
    if len(pairs) < 2:  # a merge of parts that the token never has is never made
        return pairs[0] if pairs else None
    parts = [token[place : place + 1] for place in range(len(token))]
    while len(parts) > 2:
        found = [ranks.get(left + right, inf) for left, right in pairwise(parts)]
        least = min(found)
        if least == inf:
            return None
        place = found.index(least)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return next((pair for pair in pairs if pair[0] == parts[0]), None)
