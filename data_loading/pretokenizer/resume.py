"""The state of an output: the same set, another one, one to append to, or an unfinished one."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.leakage import refuse_repeated_files
from data_loading.pretokenizer.journal import read_engine, read_job
from data_loading.pretokenizer.manifest import WRITER_VERSION
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.read_files import holds_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from data_loading.tokens.text_difference import text_difference
from data_loading.tokens.token_set import open_token_set
from data_loading.tokens.truncated_documents import CutDocuments, engine_note, obeyed_truncation
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count

_OF_A_KIND = ("encoding", "document_separator", "text_field")
"""Options that only some kinds of inputs have."""


def up_to_date(
    files: SetFiles, inputs: Inputs, tokenizer: Tokenizer, options: Options
) -> dict[str, Any] | None:
    """Manifest of the set that is there; None if there is none.

    Raises:
        UserError: it was made from something else; names both sides and the ways out.
    """
    refuse_other_things(files)
    manifest = _there(files)
    if manifest is None:
        return None
    difference = (
        _other_tokenizer_or_options(manifest, inputs, tokenizer)
        or _other_form(manifest, options)
        or _missing(files, manifest)
        or _other_text(manifest["sources"], inputs, files)
    )
    if difference:
        raise UserError(f"{files.tokens} exists, but {difference}. {_ways_out(files)}", code="output-differs")
    return manifest


def refuse_before_training(files: SetFiles, inputs: Inputs, tokenizer_name: str, options: Options) -> None:
    """Check the output before the tokenizer of that name is trained.

    Raises:
        UserError: a set made from something else is there.
    """
    refuse_other_things(files)
    manifest = None if options.overwrite else _there(files)
    if manifest is None:
        return
    there, difference = manifest["tokenizer"]["name"], None
    if there != tokenizer_name:
        difference = (
            f"it was made with tokenizer {there}, not with {tokenizer_name}, which is not trained yet"
        )
    difference = (
        difference or _other_form(manifest, options) or _other_text(manifest["sources"], inputs, files)
    )
    if difference:
        raise UserError(f"{files.tokens} exists, but {difference}. {_ways_out(files)}", code="output-differs")


def _there(files: SetFiles) -> dict[str, Any] | None:
    """Manifest of the set that is there; None if there is none. Raises UserError if a set has none."""
    manifest = read_manifest(files.tokens) if files.exists else None
    if manifest is None and files.exists:
        raise UserError(
            f"{files.tokens} exists without a manifest, so what it holds is not known. {_ways_out(files)}",
            code="output-without-manifest",
        )
    return manifest


def _ways_out(files: SetFiles) -> str:
    name = "FOLDER" if files.is_folder else "FILE.npy"
    return f"Replace it with --overwrite, or write elsewhere with --output {name}"


def base_of(
    files: SetFiles, inputs: Inputs, tokenizer: Tokenizer, options: Options
) -> tuple[dict[str, Any], bool]:
    """(manifest of the set that is appended to, whether these very inputs were its last addition).

    Raises:
        UserError: there is no set of shards, or it is not of this tokenizer and these options, or one of
            the inputs is in it, or in its held-out half.
    """
    if not files.is_folder:
        raise UserError(
            f"--append: {files.tokens} is a set in one file, which is never changed. Sets in shards grow: "
            "make one with --tokens-per-shard 100M, or tokenize all texts together",
            code="append-to-file",
        )
    refuse_other_things(files)
    manifest = read_manifest(files.tokens)
    if manifest is None:
        raise UserError(
            f"--append: there is no set of shards at {files.tokens} yet. Omit --append to make it",
            code="append-without-set",
        )
    difference = _other_tokenizer_or_options(manifest, inputs, tokenizer) or _missing(files, manifest)
    if options.shard_tokens not in (None, manifest["shard_tokens"]):
        difference = f"it has {format_count(manifest['shard_tokens'])} tokens a shard (--tokens-per-shard)"
    fraction = manifest.get("val", {}).get("fraction")
    if options.val_fraction not in (None, fraction):
        made = "without" if fraction is None else f"with {fraction} as its"
        difference = f"it was made {made} --val-fraction, not with {options.val_fraction}"
    if difference:
        raise UserError(
            f"--append: {files.tokens} cannot grow by this: {difference}. What is appended is made in the "
            "same way; write a set of its own with --output FOLDER",
            code="append-differs",
        )
    last = manifest["sources"][-manifest["generations"][-1]["sources"] :]
    if len(manifest["generations"]) > 1 and _other_text(last, inputs, files) is None:
        return manifest, True
    refuse_repeated_files(manifest, files, inputs)
    return manifest, False


def job_of(inputs: Inputs, tokenizer: Tokenizer, options: Options, base: dict[str, Any] | None) -> str:
    """A digest of everything that decides the bytes of the files that are made."""
    facts: list[Any] = [WRITER_VERSION, inputs.state(), options_of(inputs, tokenizer), tokenizer.content_hash]
    facts += [options.shard_tokens, options.val_fraction, base["fingerprint"] if base else None]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def goes_on(files: SetFiles, job: str, inputs: Inputs, tokenizer: Tokenizer, options: Options) -> bool:
    """Whether an unfinished set of this job is there to resume.

    Raises:
        UserError: there is one of another job, which may be hours of work.
    """
    earlier = read_job(files.partial)
    if earlier == job and inputs.can_continue and not options.overwrite:
        return not (engine_note(tokenizer) and obeyed_truncation(read_engine(files.partial)))
    if earlier is not None and earlier != job and not options.overwrite:
        raise UserError(
            f"{files.partial} holds an unfinished tokenization of another text (by its path, size or time of "
            "change), or with another tokenizer or option. Give those it was begun with to resume it, or "
            f"{'remove it' if options.append else '--overwrite'} to begin again",
            code="unfinished-of-other",
        )
    return False


def options_of(inputs: Inputs, tokenizer: Tokenizer) -> dict[str, Any]:
    """All that changes ids or document borders, for the manifest."""
    return {
        **inputs.options,
        "special_tokens": "parse" if tokenizer.parses_special else "text",
        **tokenizer.chosen_ends,
    }


def refuse_other_things(files: SetFiles) -> None:
    """Raise UserError if the name is taken by something else."""
    other = SetFiles(files.stem.with_name(f"{files.stem.name}.npy") if files.is_folder else files.stem)
    if other.exists:
        raise UserError(
            f"{other.tokens} is a token set of the same name, so that a run could not tell the two apart. "
            "Choose another --output, or remove it first",
            code="output-name-taken",
        )
    if not files.is_folder:
        return
    if files.tokens.is_dir() and not files.manifest.exists() and any(files.tokens.iterdir()):
        raise UserError(
            f"{files.tokens} is a folder of other things; choose another --output",
            code="output-is-other-folder",
        )
    if files.tokens.exists() and not files.tokens.is_dir():
        raise UserError(
            f"{files.tokens} is a file, and a set of shards is a folder; choose another --output",
            code="output-is-file",
        )


def _other_text(sources: list[dict[str, Any]], inputs: Inputs, files: SetFiles) -> str | None:
    return inputs.differs(sources, lambda path, fact: text_difference(path, fact, files))


def _other_tokenizer_or_options(manifest: dict[str, Any], inputs: Inputs, tokenizer: Tokenizer) -> str | None:
    there = manifest["tokenizer"]
    if there["content_hash"] != tokenizer.content_hash:
        return (
            f"it was made with tokenizer {there['name']} ({there['content_hash'][:12]}), not with "
            f"{tokenizer.name} ({tokenizer.content_hash[:12]})"
        )
    options = options_of(inputs, tokenizer)
    for name in [*options, *(name for name in manifest["options"] if name not in options)]:
        made, wanted = manifest["options"].get(name), options.get(name)
        if made == wanted:
            continue
        if name in _OF_A_KIND and (name in manifest["options"]) != (name in options):
            others = "has" if name in options else "lacks"
            return (
                f"it was made from inputs of other kinds: only one of the two has an option {name}, which "
                f"what is given now {others}"
            )
        return f"it was made with {name} {made!r}, not {wanted!r}"
    return None


def _other_form(manifest: dict[str, Any], options: Options) -> str | None:
    there = {"--tokens-per-shard": manifest.get("shard_tokens")}
    there["--val-fraction"] = manifest.get("val", {}).get("fraction")
    wanted = {"--tokens-per-shard": options.shard_tokens, "--val-fraction": options.val_fraction}
    for flag, made in there.items():
        if made != wanted[flag]:
            without = f"without {flag}"
            return (
                f"it was made {without if made is None else f'with {flag} {made}'}, not "
                f"{without if wanted[flag] is None else f'with {wanted[flag]}'}"
            )
    return None


def _missing(files: SetFiles, manifest: dict[str, Any]) -> str | None:
    for part in parts_of(files, manifest):
        for path in (part.tokens_path, part.documents_path):
            if not path.exists():
                return f"of its files {path.name} is missing"
    if not holds_tokenizer(files.tokenizer):
        return f"of its files {files.tokenizer.name} is missing"
    try:
        open_token_set(files.tokens)
    except CutDocuments:
        raise
    except UserError as error:
        return f"it is damaged: {error}"
    return None
