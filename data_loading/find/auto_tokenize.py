"""The token set of a text: the existing one, compared with the text, or made now."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conf import schema
from data_loading.find.locate import DatasetFiles, NotTokenized
from data_loading.find.verify_set import verify
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import command_for, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources.stdlib import StdlibSource, default_name
from data_loading.text_io.file_names import DEFAULT_FOLDER
from data_loading.text_io.source import Source
from data_loading.tokenizers.load import KNOWN, name_of
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import TokenSet, open_token_set
from data_loading.tokens.truncated_documents import form_flags, option_flags
from experiment_utils import lock_file
from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError

_LONGEST_WAIT_S = 7 * 86400.0


def stdlib_place(dataset: schema.Dataset, tokenizer: schema.Tokenizer) -> DatasetFiles:
    """Return the place of the tokens of dataset=stdlib. Raises UserError: dataset.path is a text."""
    if dataset.path is None:
        usual = SetFiles(DEFAULT_FOLDER / default_name(name_of(tokenizer)))
        return DatasetFiles(None, usual.stem if SetFiles(usual.stem).exists else usual.tokens)
    path = Path(dataset.path).expanduser()
    if path.suffix != ".npy" and not SetFiles(path).exists:
        raise UserError(
            f"dataset.path={dataset.path}: with dataset=stdlib it is the output, FILE.npy. To train on this "
            f"text: dataset=text dataset.path={dataset.path}",
            code="stdlib-path-is-output",
        )
    return DatasetFiles(None, path)


def token_set(
    dataset: schema.Dataset,
    place: DatasetFiles,
    tokenizer: Tokenizer,
    spec: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
) -> TokenSet:
    """Return the verified set of a text; make it first if it is missing and `tokenize` allows it.

    Raises:
        NotTokenized: it is missing, and is not to be made now.
        UserError: the text cannot be tokenized, or the set does not fit it.
    """
    if not place.is_tokenized:
        source = _source(dataset, place)
        if not (tokenize and dataset.auto_tokenize):
            text = place.text or Path("stdlib")
            command = _command(dataset, place, spec)
            raise NotTokenized(text, source.total_bytes or 0, command, tokenizer.vocab_size)
        _tokenize_once(source, tokenizer, place.tokens, log)
    found = open_token_set(place.tokens, tokenizer.vocab_size, place.version)
    source_now = StdlibSource() if dataset.source == "stdlib" else None
    verify(found, dataset, place, tokenizer, source_now, _command(dataset, place, spec, found.manifest))
    return found


def _source(dataset: schema.Dataset, place: DatasetFiles) -> Source | Inputs:
    if dataset.source == "stdlib":
        return StdlibSource()
    if place.text is None:
        raise UserError(f"{place.tokens}: no such token file", code="tokens-file-missing")
    options = InputOptions(dataset.encoding, dataset.errors, dataset.document_separator)
    return open_inputs([str(place.text)], options)


def _tokenize_once(
    source: Source | Inputs, tokenizer: Tokenizer, output: Path, log: Callable[[str], None]
) -> None:
    options = Options(terminal=sys.stderr if can_rewrite(sys.stderr) else None)
    while not output.exists():
        try:
            result = pretokenize(source, tokenizer, output, options, log)
            log(f"{output}: {result.manifest['tokens']:,} tokens in {result.seconds:.1f} s")
        except lock_file.LockHeld as held:
            log(f"{held.what} is being made by {held.holder}; waiting")
            files = SetFiles(output)
            with lock_file.lock(files.lock, f"token set {output}", wait_s=_LONGEST_WAIT_S):
                pass


def _command(
    dataset: schema.Dataset,
    place: DatasetFiles,
    tokenizer: schema.Tokenizer,
    manifest: dict[str, Any] | None = None,
) -> str:
    """Return the command that makes this set again; options of its manifest fill in the defaults."""
    made = dict(manifest["options"]) if manifest else {}
    if dataset.source == "stdlib":
        return command_for("stdlib", _flag(tokenizer), "--output", str(place.tokens))
    requested = {
        "document_separator": dataset.document_separator,
        "encoding": dataset.encoding,
        "errors": dataset.errors,
    }
    default = schema.Dataset()
    made |= {name: value for name, value in requested.items() if value != getattr(default, name)}
    recorded = manifest or {}
    options = [*option_flags(made), *form_flags(recorded)]
    sources = recorded.get("sources", [])
    texts = [str(place.text)] if place.text else [source["path"] for source in sources]
    if place.text is None:
        options += ["--output", str(place.tokens)]
    return command_for(texts or ["TEXT"], _flag(tokenizer), *options)


def _flag(tokenizer: schema.Tokenizer) -> str:
    """Return the value of `--tokenizer` for it."""
    if tokenizer.path is not None:
        return tokenizer.path
    return tokenizer.name if tokenizer.name in KNOWN else tokenizer.repo or tokenizer.name
