"""Which Unigram models splintr 0.22 encodes as the reference does, and what characters it sees differently.

Found by trying: all of Unicode with each normalizer, in a vocabulary of single bytes that shows what
every character becomes, then random texts and vocabularies. Whatever is not listed here is refused.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from data_loading.pretokenizer.cut_normalizers import WORD_MARK
from data_loading.pretokenizer.cuts import steps_of
from data_loading.pretokenizer.engine import Unsupported
from data_loading.tokenizer import model_type

UNKNOWN = "<unk>"
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))

_NEW_TO_NORMALIZERS = (
    "\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b-\u0d3c\u0eba\u1715\u1abf-\u1aeb\u1df6-\u1dfa"
    "\u32ff\ua7f1-\ua7f4\ua82c\uab69\U000105c9\U000105e4\U00010781-\U000107ba\U00010d24-\U00010d27"
    "\U00010d69-\U00010d6d\U00010eab-\U00010eac\U00010efa-\U00010eff\U00010f46-\U00010f50"
    "\U00010f82-\U00010f85\U00011070\U0001133b\U00011383-\U00011391\U000113c2-\U000113d0\U0001145e"
    "\U00011839-\U0001183a\U00011938-\U00011943\U000119e0\U00011a34\U00011a47\U00011a99"
    "\U00011d42-\U00011d45\U00011d97\U00011f41-\U00011f42\U0001611e-\U0001612f\U00016d67-\U00016d6a"
    "\U00016ff0-\U00016ff1\U0001ccd6-\U0001ccf9\U0001e030-\U0001e06d\U0001e08f\U0001e130-\U0001e136"
    "\U0001e2ae\U0001e2ec-\U0001e2ef\U0001e4ec-\U0001e4ef\U0001e5ee-\U0001e5ef\U0001e6e3-\U0001e6f5"
    "\U0001f16c\U0001fbf0-\U0001fbf9"
)
"""In NFC, NFD, NFKC and NFKD: what has a decomposition, or an order among marks, since Unicode 12.1."""

_OTHER_MARKS = (
    "\u0488-\u0489\u07fd\u0897-\u0df3\u0eba-\u0f7f\u102b-\u109c\u1715-\u1734\u17b6-\u180f\u1923-\u1938"
    "\u1a19-\u1c35\u1ce1-\u1cf3\u1df6-\u1dfa\u20dd-\u20e4\u302e-\u302f\u32ff\ua670-\ua672\ua7f1-\uabec"
    "\U000105c9-\U000105e4\U00010781-\U000107ba\U00010d24-\U00010d6d\U00010eab-\U00011241"
    "\U000112e0-\U000114c1\U000115af-\U00011726\U0001182f-\U0001183a\U00011938-\U00011943"
    "\U000119d4-\U00011a99\U00011c2f-\U00011d97\U00011ef3-\U00011f5a\U00013440-\U00013455"
    "\U0001611e-\U0001612f\U00016d67-\U00016d6a\U00016f4f-\U00016ff1\U0001ccd6-\U0001ccf9"
    "\U0001cf00-\U0001cf46\U0001d15e-\U0001d1c0\U0001e030-\U0001e08f\U0001e130-\U0001e136"
    "\U0001e2ae-\U0001e2ef\U0001e4ec-\U0001e4ef\U0001e5ee-\U0001e5ef\U0001e6e3-\U0001e6f5\U0001f16c"
    "\U0001fbf0-\U0001fbf9"
)
"""In StripAccents: marks with a width, which the reference strips as well; those above too."""

_NMT = "\u2581\ufeff\ufffd"
_NMT_SPACES = "\u205f\u3000"
"""Two more in Nmt, unless another normalizer makes spaces of them."""

_COMPATIBLE = ("NFKC", "NFKD")
_COMPOSING = ("NFC", "NFD", *_COMPATIBLE)
_REPLACED = ({"String": "``"}, {"String": "''"})
_BLANKS = {"Regex": " {2,}"}


def definition_for_splintr(definition: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer.json to load: special tokens are ordinary text, and nothing is added to a text.

    Raises:
        Unsupported: ids could differ from the reference's.
    """
    if model_type(definition) != "Unigram":
        raise Unsupported("it encodes Unigram models only")
    _check_vocabulary(definition["model"])
    for token in definition.get("added_tokens") or []:
        if not token.get("special"):
            raise Unsupported(f"the added token {token['content']!r} is not a special one")
    words, marks = _splitters(definition)
    normalizers = steps_of(definition.get("normalizer"), "normalizers")
    if normalizers and marks.get("prepend_scheme", "always") == "first":
        # The reference marks no text whose first character a normalizer made or took away.
        raise Unsupported("its Metaspace marks the beginning of a text only, which a normalizer may change")
    _check_normalizer(normalizers, words)
    metaspace = {
        "type": "Metaspace",
        "replacement": WORD_MARK,
        "prepend_scheme": marks.get("prepend_scheme", "always"),
        "split": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": definition.get("normalizer"),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*words, metaspace]} if words else metaspace,
        "model": {**definition["model"], "type": "Unigram"},
    }


def doubtful_characters(definition: dict[str, Any]) -> str:
    """Inside of a regular expression's [...], for a tokenizer that is not refused."""
    kinds = {step["type"] for step in steps_of(definition.get("normalizer"), "normalizers")}
    found = ""
    if "StripAccents" in kinds:
        found += _OTHER_MARKS
    elif kinds & {*_COMPOSING}:
        found += _NEW_TO_NORMALIZERS
    if "Nmt" in kinds:
        found += _NMT if kinds & {*_COMPATIBLE} else _NMT + _NMT_SPACES
    if _splitters(definition)[0]:
        found += WORD_MARK  # written out in a text it does not begin a word for splintr
    return found


def _check_vocabulary(model: dict[str, Any]) -> None:
    if not isinstance(model["vocab"], list):
        raise Unsupported("its vocabulary is not a list of tokens and scores")
    pieces = [piece for piece, _ in model["vocab"]]
    known, unknown = set(pieces), model.get("unk_id")
    if unknown is None or pieces[unknown : unknown + 1] != [UNKNOWN]:
        raise Unsupported(f"its unknown token is not {UNKNOWN}")
    if len(known) < len(pieces) or "" in known:
        raise Unsupported("a token of its vocabulary stands there twice, or is empty")
    if WORD_MARK not in known:
        raise Unsupported(f"its vocabulary has no {WORD_MARK}")
    here = sum(piece in known for piece in BYTE_PIECES)
    if here != (len(BYTE_PIECES) if model.get("byte_fallback") else 0):
        raise Unsupported(f"{here} of the 256 bytes are in its vocabulary")


def _splitters(definition: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(WhitespaceSplit, where there is one; Metaspace)."""
    steps = steps_of(definition.get("pre_tokenizer"), "pretokenizers")
    kinds = [step["type"] for step in steps]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise Unsupported(f"it splits by {', '.join(kinds) or 'nothing'}, not by Metaspace")
    *words, marks = steps
    if marks.get("replacement", WORD_MARK) != WORD_MARK or not marks.get("split", True):
        raise Unsupported("its Metaspace does not split at the word mark")
    if words and marks.get("prepend_scheme", "always") != "always":
        raise Unsupported("its Metaspace does not mark every word behind a WhitespaceSplit")
    return words, marks


def _check_normalizer(steps: list[dict[str, Any]], words: list[dict[str, Any]]) -> None:
    is_table_before = False
    for step in steps:
        kind = step["type"]
        if kind == "Precompiled":
            is_table_before = True
            if words and WORD_MARK.encode() in b64decode(step["precompiled_charsmap"]):
                raise Unsupported("its Precompiled normalizer makes word marks")
        elif kind in (*_COMPOSING, "StripAccents", "Nmt"):
            if is_table_before:  # which characters that one makes is not known
                raise Unsupported(f"its normalizer {kind} stands behind a Precompiled one")
        elif kind == "Replace":
            _check_replace(step, words)
        elif kind != "Lowercase":
            raise Unsupported(f"its normalizer {kind}")


def _check_replace(step: dict[str, Any], words: list[dict[str, Any]]) -> None:
    pattern, content = step.get("pattern"), step.get("content")
    quotes = pattern in _REPLACED and content == '"'
    blanks = pattern == _BLANKS and (content == " " or (content == WORD_MARK and not words))
    if not (quotes or blanks):
        raise Unsupported("its normalizer Replace")
