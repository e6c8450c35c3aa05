"""Reading a tokenizer's folder, tokenizer.json or GPT-2's two files, and refusing what is broken."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_loading.tokenizers.contradictions import log_contradictions
from data_loading.tokenizers.tiktoken import TIKTOKEN_FILE, read_tiktoken
from data_loading.tokenizers.tokenizer import (
    BYTES_FILE,
    END_OF_TEXT,
    END_OF_TEXT_NAMES,
    BytesTokenizer,
    JsonTokenizer,
    Tokenizer,
    vocabulary,
)
from data_loading.tokenizers.validate import check_definition
from experiment_utils.errors import UserError
from memory.files.file_kinds import not_expected

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    BYTES_FILE,
)
_NAMING = ("tokenizer_config.json", "special_tokens_map.json")
"""Files that name the special tokens, in the order in which they count."""
_CONVERTIBLE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt")
"""Files of SentencePiece and WordPiece."""
_CONFIG = "config.json"
"""File of a model; not copied."""
_LIKE_GPT2 = ("GPT2", "Roberta", "Bart", "Longformer", "LED", "Deberta", "CodeGen")
"""Classes of transformers that split by GPT-2's pattern and change nothing in the text."""
_MODELS_LIKE_GPT2 = (
    *("gpt2", "gpt_neo", "gptj", "opt", "codegen", "roberta", "bart", "longformer", "led"),
    "deberta",
)
_OTHER_ENDS = {
    **dict.fromkeys(("Roberta", "Bart", "Longformer", "LED"), "</s>"),
    **dict.fromkeys(("roberta", "bart", "longformer", "led", "opt"), "</s>"),
    **dict.fromkeys(("Deberta", "deberta"), "[SEP]"),
}
"""The eos_token of those that have another one than GPT-2 where their files name none."""
_SPECIAL = re.compile(r"[<\[].*[>\]]")
_UNREACHABLE_ALLOWED = 64


def holds_tokenizer(folder: Path) -> bool:
    """True when the folder has files that `read_tokenizer` reads."""
    names = ("tokenizer.json", BYTES_FILE, TIKTOKEN_FILE)
    return any((folder / name).is_file() for name in names) or (
        (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    )


def read_tokenizer(folder: Path, name: str) -> Tokenizer:
    """The tokenizer of a folder.

    Raises:
        UserError: nothing there that is known, or it is broken, truncated or empty.
    """
    files = [folder / file for file in (*TOKENIZER_FILES, _CONFIG) if (folder / file).is_file()]
    if not holds_tokenizer(folder):
        raise UserError(
            f"tokenizer {name}: {folder} holds neither tokenizer.json nor vocab.json with merges.txt"
            + (f" (there is {', '.join(file.name for file in files)})" if files else "")
            + _how_to_convert(folder),
            code="tokenizer-files-missing",
        )
    if (folder / BYTES_FILE).is_file():
        return BytesTokenizer()
    if (folder / TIKTOKEN_FILE).is_file():
        return read_tiktoken(folder, name)
    stamps = tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return _read_json_tokenizer(folder, name, stamps)


def _how_to_convert(folder: Path) -> str:
    """A hint for files from which transformers makes a tokenizer.json."""
    others = [name for name in _CONVERTIBLE if (folder / name).is_file()]
    if not others:
        return ""
    code = "from transformers import AutoTokenizer as A; "
    code += f"A.from_pretrained('{folder}').save_pretrained('{folder}')"
    return f". Make a tokenizer.json of {', '.join(others)}: python -c {shlex.quote(code)}"


def check_copies(folder: Path, tokenizer: Tokenizer) -> None:
    """The files in the folder of a set that `tokenizer` was not read from agree with it too.

    Raises:
        UserError: one of them is damaged, or from another tokenizer.
    """
    for file in (folder / name for name in TOKENIZER_FILES):
        found = _read_json(file) if file.suffix == ".json" and file.is_file() else None
        if file.name == BYTES_FILE and found not in (None, BytesTokenizer().description):
            raise UserError(f"{file} does not describe the tokenizer bytes", code="tokenizer-damaged")
    copies = all((folder / name).is_file() for name in ("vocab.json", "merges.txt"))
    if copies and isinstance(tokenizer, JsonTokenizer):
        copied = replace(tokenizer, definition=_from_vocab_and_merges(folder))
        if copied.content_hash != tokenizer.content_hash:
            raise UserError(
                f"{folder}: vocab.json and merges.txt are not those of its tokenizer.json",
                code="tokenizer-copies-differ",
            )


@lru_cache(maxsize=4)
def _read_json_tokenizer(folder: Path, name: str, stamps: tuple[tuple[Path, int, int], ...]) -> JsonTokenizer:
    """stamps (path, size, mtime): a changed file is read again."""
    files = tuple(file for file, _, _ in stamps if file.name != _CONFIG)
    if folder / "tokenizer.json" in files:
        definition = _read_json(folder / "tokenizer.json")
        what = folder / "tokenizer.json"
        files = tuple(file for file in files if file.name not in ("vocab.json", "merges.txt"))
    else:
        definition = _from_vocab_and_merges(folder)
        what = folder / "vocab.json"
    check_definition(definition, what)
    if what.name == "tokenizer.json":
        read = [_read_json(path) if path in files else {} for path in (folder / file for file in _NAMING)]
        log_contradictions(name, definition, *read)
    return JsonTokenizer(name, definition, _end_of_text(folder, definition), files)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        if (other := not_expected(path, "a JSON file of a tokenizer")) is not None:
            raise UserError(other, code="other-kind-of-file") from None
        raise UserError(
            f"{path} is truncated or no JSON ({error}). Fetch the file again", code="tokenizer-damaged"
        ) from error
    except RecursionError:
        raise UserError(
            f"{path} is nested too deeply to be a file of a tokenizer. Fetch it again",
            code="tokenizer-damaged",
        ) from None
    if not isinstance(value, dict):
        raise UserError(
            f"{path} holds a JSON {type(value).__name__}, expected an object", code="tokenizer-damaged"
        )
    return value


def _from_vocab_and_merges(folder: Path) -> dict[str, Any]:
    """The tokenizer.json that transformers' GPT2Tokenizer makes of these two files."""
    vocab = _read_json(folder / "vocab.json")
    config = (
        _read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    )
    if (folder / "added_tokens.json").is_file() or len(config.get("added_tokens_decoder", {})) > 1:
        raise UserError(
            f"{folder} adds tokens to vocab.json, which only a tokenizer.json can say exactly. Make one: "
            f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')",
            code="tokenizer-needs-json",
        )
    _check_like_gpt2(folder, config)
    if not all(isinstance(index, int) for index in vocab.values()):
        raise UserError(
            f"{folder / 'vocab.json'}: expected whole numbers as ids", code="tokenizer-vocabulary-invalid"
        )
    merges = _read_merges(folder / "merges.txt")
    if len(vocab) > 1:
        _check_merges_reach_all(folder, vocab, merges)
    _check_end_of_text(folder, vocab)
    eot_id = vocab.get(END_OF_TEXT, max(vocab.values(), default=-1) + 1)
    prefix = bool(config.get("add_prefix_space", False))
    byte_level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": eot_id, "content": END_OF_TEXT, **flags}] if vocab else [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _check_like_gpt2(folder: Path, config: dict[str, Any]) -> None:
    """Raise UserError for other classes, which read the two files with another pattern or change the text."""
    model = _read_json(folder / _CONFIG) if (folder / _CONFIG).is_file() else {}
    given = config.get("tokenizer_class") or model.get("tokenizer_class")
    if given is None:
        kind, what = str(model.get("model_type", "gpt2")), f"model {model.get('model_type')}"
        known = kind in _MODELS_LIKE_GPT2
    else:
        kind, what = str(given).removesuffix("Fast").removesuffix("Tokenizer"), f"class {given}"
        known = kind in _LIKE_GPT2
    if not known:
        raise UserError(
            f"{folder}: vocab.json and merges.txt are of the {what}, which may divide or end text otherwise "
            "than GPT-2. Only a tokenizer.json says how. Make one: "
            f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')",
            code="tokenizer-needs-json",
        )

    if kind in _OTHER_ENDS and not any(token for _, token in _named_ends(folder)):
        raise UserError(
            f"{folder}: vocab.json and merges.txt are of the {what}, whose end of text is "
            f"{_OTHER_ENDS[kind]!r}, and no file there says so. Make a tokenizer.json: "
            f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')",
            code="tokenizer-needs-json",
        )


def _check_end_of_text(folder: Path, vocab: dict[str, int]) -> None:
    """Raise UserError if another end of text is named: transformers would add that token."""
    for path, content in _named_ends(folder):
        if content is not None and content not in vocab and content != END_OF_TEXT:
            raise UserError(
                f"{path}: its eos_token {content!r} is not in vocab.json. Make a tokenizer.json that has it: "
                f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')",
                code="tokenizer-needs-json",
            )


def _read_merges(path: Path) -> list[list[str]]:
    merges = []
    if (other := not_expected(path, "merges, two tokens a line")) is not None:
        raise UserError(other, code="other-kind-of-file")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is truncated or no UTF-8 ({error}). Fetch the file again", code="tokenizer-damaged"
        ) from error
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or not all(pair):
            raise UserError(
                f"{path}, line {number}: expected two tokens, found {line!r}. Is the file truncated?",
                code="tokenizer-merge-invalid",
            )
        merges.append(pair)
    return merges


def _check_merges_reach_all(folder: Path, vocab: dict[str, int], merges: list[list[str]]) -> None:
    """A merges.txt cut at the end of a line still parses: then most tokens can never be made."""
    made = {left + right for left, right in merges}
    missing = [t for t in vocab if len(t) > 1 and t not in made and not _SPECIAL.fullmatch(t)]
    if len(missing) > _UNREACHABLE_ALLOWED:
        raise UserError(
            f"{folder / 'merges.txt'} has {len(merges):,} merges, which cannot make {len(missing):,} of the "
            f"{len(vocab):,} tokens in vocab.json (such as {missing[-1]!r}). It is truncated, or from "
            "another tokenizer: fetch both files again",
            code="tokenizer-merge-invalid",
        )


def _end_of_text(folder: Path, definition: dict[str, Any]) -> int | None:
    """eos_token of tokenizer_config.json or special_tokens_map.json, else the first usual name there is."""
    ids = vocabulary(definition)
    found = [ids[content] for _, content in _named_ends(folder) if content in ids]
    return next(iter(found), next((ids[name] for name in END_OF_TEXT_NAMES if name in ids), None))


def _named_ends(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """(file, eos_token)"""
    for path in (folder / name for name in _NAMING):
        if path.is_file():
            token = _read_json(path).get("eos_token")
            content = token.get("content") if isinstance(token, dict) else token
            yield path, content if isinstance(content, str) else None
