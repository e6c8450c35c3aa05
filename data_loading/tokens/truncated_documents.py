"""Sets in which an earlier version cut documents short, as the `truncation` of a tokenizer.json said.

Until the manifest noted `truncation`, the engine fastokens was given that part of the file and obeyed it. A
set can be affected only if that engine made it, the file has a truncation, and a document is as long as it
allows; every other set is as it should be.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.run_folder import WHOLE, read_file

IGNORED = {"truncation": "ignored"}
"""What the `engine` of a manifest says where the tokenizer.json has a truncation that was left out."""
_ENGINE = "fastokens"
_SET = re.compile(rb'"truncation"\s*:\s*\{')
_READ_STARTS = 1 << 20
_MOST_NAMED = 8
_OPTIONS = (
    ("--document-separator", None),
    ("--encoding", "utf-8"),
    ("--errors", "strict"),
    ("--text-field", "text"),
    ("--max-documents", None),
    ("--max-tokens", None),
    ("--clean", None),
    ("--dedup", None),
    ("--special-tokens", "text"),
    ("--eos", None),
    ("--bos", None),
)
"""Flags whose values a manifest keeps under their names, and the values that need no flag."""


class CutDocuments(UserError):
    """A set in which documents may have lost their end."""

    code = "documents-cut"


def engine_note(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a manifest notes of the engine: that the truncation of the tokenizer.json was left out."""
    is_left_out = isinstance(tokenizer, JsonTokenizer) and tokenizer.definition.get("truncation")
    return IGNORED if is_left_out else {}


def obeyed_truncation(engine: dict[str, Any]) -> bool:
    """Whether a truncation was obeyed, if there was one, by the `engine` of a manifest."""
    return engine.get("name") == _ENGINE and "truncation" not in engine


def refuse_cut(
    name: str,
    manifest: dict[str, Any],
    tokenizer: Path,
    documents: Values,
    *,
    earlier: Iterable[dict[str, Any]] = (),
    truncation: dict[str, Any] | None = None,
) -> None:
    """Refuse a set whose documents may have been cut.

    Args:
        name: Path or address of the set.
        manifest: Its manifest, or that of a task.
        tokenizer: Folder with the copy of its tokenizer.
        documents: Document starts.
        earlier: Manifests of the set before more was appended.
        truncation: Of the tokenizer.json in use, for a set without a copy of its own.

    Raises:
        CutDocuments: With the command that makes the set again.
    """
    most = cut_at(manifest, tokenizer, documents, earlier=earlier, truncation=truncation)
    if most is None:
        return
    raise CutDocuments(
        f"{name} was made by an earlier version, which obeyed the truncation in the tokenizer.json of "
        f"{manifest['tokenizer']['name']}: documents of {most:,} tokens or more may have lost text. Make it "
        f"again: {remake_command(name, manifest, tokenizer)}",
        code="documents-cut",
    )


def cut_at(
    manifest: dict[str, Any],
    tokenizer: Path,
    documents: Values | Sequence[int],
    *,
    earlier: Iterable[dict[str, Any]] = (),
    truncation: dict[str, Any] | None = None,
) -> int | None:
    """Tokens from which on documents may have been cut; None if none was. Arguments as in `refuse_cut`."""
    if not any(map(obeyed_truncation, (engine for one in (manifest, *earlier) for engine in _engines(one)))):
        return None
    copy = tokenizer / "tokenizer.json"
    most = _most_tokens(_truncation_of(copy) if copy.is_file() else truncation)
    return None if most is None or _longest(documents, manifest) < most else most


def earlier_manifests(files: SetFiles, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The manifests that a set of shards had before more was appended, as far as they can be read."""
    for fingerprint in manifest.get("earlier", ()):
        found = read_file(files.earlier_manifest(fingerprint))
        if found.state == WHOLE:
            yield found.value


def option_flags(options: dict[str, Any]) -> list[str]:
    """Flags of pretokenize_dataset.py that give the options of a manifest again."""
    used = [(flag, options.get(flag[2:].replace("-", "_"), default), default) for flag, default in _OPTIONS]
    return [word for flag, value, default in used if value != default for word in (flag, str(value))]


def form_flags(manifest: dict[str, Any]) -> list[str]:
    """Flags that give the shards and the held-out part of a set again."""
    flags = []
    if manifest.get("shard_tokens") is not None:
        flags += ["--tokens-per-shard", str(manifest["shard_tokens"])]
    if (fraction := (manifest.get("val") or {}).get("fraction")) is not None:
        flags += ["--val-fraction", str(fraction)]
    return flags


def remake_command(name: str, manifest: dict[str, Any], tokenizer: Path) -> str:
    """The command that makes a set again, from the inputs that its manifest names."""
    paths = list(dict.fromkeys(source["path"] for source in manifest["sources"]))
    texts = [path if "://" in path else str(Path(name).parent / path) for path in paths]
    if len(texts) > _MOST_NAMED:
        texts = ["INPUTS"]
    flags = [*option_flags(manifest["options"]), *form_flags(manifest)]
    asked = manifest["tokenizer"]["name"]
    is_found_by_name = "/" in asked or asked == "gpt2" or not tokenizer.is_dir()
    words = ["python", "pretokenize_dataset.py", *texts]
    words += ["--tokenizer", asked if is_found_by_name else str(tokenizer), *flags]
    return shlex.join([*words, "--output", name, "--overwrite"])


def _engines(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found = manifest.get("engines", [manifest.get("engine")])
    return [engine for engine in found if isinstance(engine, dict)]


def _truncation_of(path: Path) -> dict[str, Any] | None:
    """That of a tokenizer.json, which is parsed only where it seems to have one: it may be large."""
    try:
        data = path.read_bytes()
        return json.loads(data).get("truncation") if _SET.search(data) else None
    except (OSError, ValueError, AttributeError):
        return None  # what is wrong with it is reported by those who need it


def _most_tokens(truncation: dict[str, Any] | None) -> int | None:
    found = truncation.get("max_length") if isinstance(truncation, dict) else None
    return found if isinstance(found, int) else None


def _longest(documents: Values | Sequence[int], manifest: dict[str, Any]) -> int:
    """Tokens of text in the longest document."""
    longest = 0
    for at in range(0, len(documents), _READ_STARTS):
        starts = np.asarray(documents[at : at + _READ_STARTS + 1]).astype(np.int64)
        if at + _READ_STARTS >= len(documents):
            starts = np.append(starts, manifest["tokens"])
        longest = max(longest, int(np.diff(starts).max(initial=0)))
    return longest - bool(manifest["tokenizer"]["eot_appended"])
