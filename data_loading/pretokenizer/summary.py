"""What a user is told of a set that was made: what it holds, how it was made, what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from conf.overrides import typed_at
from conf.schema import DEFAULT_EFFECTIVE_BATCH, Dataset, Tokenizer, Training
from data_loading.dataset.splits import other_ranges
from data_loading.pretokenizer.job import Result
from data_loading.pretokenizer.manifest import is_limited
from data_loading.tokenizers.load import KNOWN
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles, other_halves
from memory import format_bytes

DTYPES = {"<u2": "uint16", "<u4": "uint32"}


def facts_of(result: Result) -> dict[str, Any]:
    """For `--json`."""
    return {
        "path": str(result.path),
        "made": result.made,
        "tokens": result.manifest["tokens"],
        "text_tokens": result.text_tokens,
        "documents": result.manifest["documents"],
        "text_bytes": result.text_bytes,
        "file_bytes": result.file_bytes,
        "shards": len(result.manifest.get("shards", [])) or None,
        "val": result.manifest.get("val"),
        "dtype": result.manifest["dtype"],
        "tokenizer": result.manifest["tokenizer"],
        "engine": result.manifest["engine"],
        "fingerprint": result.manifest["fingerprint"],
        "seconds": round(result.seconds, 3),
        "peak_memory_bytes": result.peak_bytes,
    }


def summary_of(result: Result) -> str:
    """One line on what it holds, one on how it was made."""
    manifest, name = result.manifest, result.manifest["tokenizer"]["name"]
    documents = _count(manifest["documents"], "document")
    behind = "it" if manifest["documents"] == 1 else "each"
    said = manifest["tokenizer"]
    appended = f" and the end-of-text id {said['eot_id']} after {behind}" if said["eot_appended"] else ""
    appended += f", the begin-of-text id {said['bos_id']} before {behind}" if "bos_id" in said else ""
    what = (
        f"{result.path}: {_count(result.text_tokens, 'token')} of text in {documents}{appended}, "
        f"{format_bytes(result.file_bytes)} ({DTYPES[manifest['dtype']]}), tokenizer {name}"
    )
    what += _form(manifest)
    if result.made:
        made = f"made in {result.seconds:.1f} s{_rate(result)} by engine {manifest['engine']['name']}"
        if result.peak_bytes is not None:
            made += f", in at most {format_bytes(result.peak_bytes)} of memory"
        lines = [what, made]
    else:
        lines = [what, "up to date: nothing to do (--overwrite makes it anew)"]
    return "\n".join(lines)


def _rate(result: Result) -> str:
    """Nothing where a limit was reached in a source that does not know how much of it was read."""
    if is_limited(result.manifest) and "read_bytes" not in result.manifest["sources"][-1]:
        return ""
    return f" ({result.text_bytes / 1e6 / result.seconds:.1f} MB/s)"


def _form(manifest: dict[str, Any]) -> str:
    """What a user asked for of the set's form."""
    words = ""
    if "shards" in manifest:
        words += f", {_count(len(manifest['shards']), 'shard')}"
    if "val" in manifest:
        held_out = sum(stop - start for start, stop in manifest["val"]["ranges"])
        words += f", the last {_count(held_out, 'token')} held out"
        if len(manifest["val"]["ranges"]) > 1:
            words = words.replace("the last ", "")
    return words


def next_command(results: list[Result], spec: Tokenizer, *, is_usual_stdlib: bool) -> str:
    """The command that trains on it, or why there is none.

    is_usual_stdlib: a run finds it without being told where it lies.
    """
    if is_usual_stdlib:
        train = [] if spec.name == "bytes" else _overrides(spec)
    else:
        keys = ("dataset.path", "dataset.val_path")
        paths = [
            f"{key}={typed_at(key, str(result.path))}" for key, result in zip(keys, results, strict=False)
        ]
        manifests = [result.manifest for result in results]
        halves = _halves(results[0].path) if len(results) == 1 else None
        if halves is not None:
            stem, manifests = halves
            paths = [f"dataset.path={typed_at('dataset.path', str(stem))}"]
        fitting = _fitting(manifests)
        if fitting is None:
            return "too short to train on: two tokens are needed to train on and two to hold out"
        train = ["dataset=text", *paths, *_overrides(spec), *fitting]
    return f"next: {shlex.join(['python', 'experiments.py', 'model=32d', *train])}"


def _halves(path: Path) -> tuple[Path, list[dict[str, Any]]] | None:
    """X, and the manifests of X_train and X_validation: the set is one of them, the other is there."""
    others = [other.tokens for other in other_halves(SetFiles(path)) if other.exists]
    if len(others) != 1:
        return None
    train, val = sorted((path, others[0]), key=lambda half: not SetFiles(half).stem.name.endswith("_train"))
    manifests = [manifest for half in (train, val) if (manifest := read_manifest(half)) is not None]
    stem = SetFiles(train).stem
    return (stem.with_name(stem.name.removesuffix("_train")), manifests) if len(manifests) == 2 else None


def _fitting(manifests: list[dict[str, Any]]) -> list[str] | None:
    """What a text needs that is too short for the usual windows and batches; None where nothing helps."""
    to_train, held_out = _lengths(manifests)
    shortest = min(max(to_train, default=0), max(held_out, default=0)) - 1
    if shortest < 1:
        return None
    seq_len = min(Training().seq_len, 1 << (shortest.bit_length() - 1))
    batch = min(DEFAULT_EFFECTIVE_BATCH, sum((length - 1) // seq_len for length in to_train))
    needed = {"seq_len": (seq_len, Training().seq_len), "effective_batch": (batch, DEFAULT_EFFECTIVE_BATCH)}
    return [f"training.{key}={fits}" for key, (fits, usual) in needed.items() if fits != usual]


def _lengths(manifests: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """Tokens of each stretch to train on, and of each that is held out."""
    tokens = [manifest["tokens"] for manifest in manifests]
    if len(tokens) == 2:
        return [tokens[0]], [tokens[1]]
    if "val" in manifests[0]:
        val = [range(*given) for given in manifests[0]["val"]["ranges"]]
        return [len(part) for part in other_ranges(tokens[0], val)], [len(part) for part in val]
    held_out = round(tokens[0] * Dataset().val_fraction)
    return [tokens[0] - held_out], [held_out]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _overrides(spec: Tokenizer) -> list[str]:
    """How `experiments.py` is told of the same tokenizer."""
    if spec.path is not None:
        return ["tokenizer=custom", f"tokenizer.path={typed_at('tokenizer.path', spec.path)}"]
    if spec.name not in KNOWN:
        return ["tokenizer=custom", f"tokenizer.repo={spec.repo}"]
    return [f"tokenizer={spec.name}"]
