"""Sets in which an earlier version cut documents short, as `truncation` in a tokenizer.json says.

Before the manifest noted `truncation`, the engine fastokens obeyed that part of the file. A set is affected
only if that engine made it, the file has a truncation, and a document is as long as it allows.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.tokens.lazy_array import Values, document_lengths
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.run_folder import WHOLE, read_file

if TYPE_CHECKING:
    from data_loading.tokenizers.tokenizer import Tokenizer

_IGNORED = {"truncation": "ignored"}
_ENGINE = "fastokens"
_HAS_TRUNCATION = re.compile(rb'"truncation"\s*:\s*\{')
_MOST_NAMED = 8
_OPTIONS = {
    "document_separator": None,
    "encoding": "utf-8",
    "errors": "strict",
    "text_field": "text",
    "max_documents": None,
    "max_tokens": None,
    "clean": None,
    "dedup": None,
    "special_tokens": "text",
    "eos": None,
    "bos": None,
}
"""Options in a manifest that have a flag of the same name, with their defaults."""


class CutDocuments(UserError):
    """A set in which documents may have lost their end."""

    code = "documents-cut"


def engine_note(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the note for `engine` in a manifest if the truncation of the tokenizer.json was ignored."""
    return _IGNORED if getattr(tokenizer, "definition", {}).get("truncation") else {}


def obeyed_truncation(engine: dict[str, Any]) -> bool:
    """Whether the `engine` of a manifest would have obeyed a truncation."""
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
    """Return the tokens at which documents were cut, None if none was. Arguments as in `refuse_cut`."""
    engines = [engine for one in (manifest, *earlier) for engine in one.get("engines", [one.get("engine")])]
    if not any(isinstance(engine, dict) and obeyed_truncation(engine) for engine in engines):
        return None
    copy = tokenizer / "tokenizer.json"
    truncation = _truncation_of(copy) if copy.is_file() else truncation
    most = truncation.get("max_length") if isinstance(truncation, dict) else None
    return most if isinstance(most, int) and _longest(documents, manifest) >= most else None


def earlier_manifests(files: SetFiles, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the readable manifests that a set of shards had before more was appended."""
    for fingerprint in manifest.get("earlier", ()):
        found = read_file(files.earlier_manifest(fingerprint))
        if found.state == WHOLE:
            yield found.value


def option_flags(options: dict[str, Any]) -> list[str]:
    """Return the flags of pretokenize_dataset.py that give the options of a manifest."""
    flags = []
    for name, default in _OPTIONS.items():
        flag, value = f"--{name.replace('_', '-')}", str(options.get(name, default))
        if value != str(default):
            flags += [f"{flag}={value}"] if value[0] == "-" and len(value) > 1 else [flag, value]
    return flags


def form_flags(manifest: dict[str, Any]) -> list[str]:
    """Return the flags that give the shards and the held-out part of a set."""
    flags = []
    if manifest.get("shard_tokens") is not None:
        flags += ["--tokens-per-shard", str(manifest["shard_tokens"])]
    if (fraction := (manifest.get("val") or {}).get("fraction")) is not None:
        flags += ["--val-fraction", str(fraction)]
    return flags


def remake_command(name: str, manifest: dict[str, Any], tokenizer: Path) -> str:
    """Return the command that makes a set again, from the inputs that its manifest names."""
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


def _truncation_of(path: Path) -> dict[str, Any] | None:
    """Return the truncation of a tokenizer.json, which may be large: parsed only if it seems to have one."""
    try:
        data = path.read_bytes()
        return json.loads(data).get("truncation") if _HAS_TRUNCATION.search(data) else None
    except (OSError, ValueError, AttributeError):
        return None  # damage is reported when the tokenizer is loaded


def _longest(documents: Values | Sequence[int], manifest: dict[str, Any]) -> int:
    """Return the tokens of text in the longest document."""
    longest = max((int(part.max()) for part in document_lengths(documents, manifest["tokens"])), default=0)
    return longest - bool(manifest["tokenizer"]["eot_appended"])
