"""Checks of a token set: its manifest agrees with the text, the tokenizer and the options of a run."""

from __future__ import annotations

from collections.abc import Sequence

from conf import schema
from data_loading.find.locate import DatasetFiles
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.text_io.single_stream import text_encoding
from data_loading.tokenizers.load import KNOWN
from data_loading.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.text_difference import text_difference
from data_loading.tokens.token_set import TokenSet
from data_loading.tokens.tokens import Tokens
from data_loading.tokens.truncated_documents import refuse_cut
from experiment_utils.errors import Problem, UserError

_TEXT_KEYS = ("document_separator", "encoding", "errors")


def verify(
    found: TokenSet,
    dataset: schema.Dataset,
    place: DatasetFiles,
    tokenizer: Tokenizer,
    stdlib: StdlibSource | None,
    command: str,
) -> None:
    """Compare a set's manifest with its text, the tokenizer and the options of the run.

    A set without a manifest was checked when it was opened, as far as that is possible. Options that the
    configuration leaves at their default are those of the set.

    Args:
        found: The set.
        dataset: Configuration of the run.
        place: Of the set and its text.
        tokenizer: Of the run.
        stdlib: The source as it is now, for dataset=stdlib.
        command: Makes the set again.

    Raises:
        UserError: something differs.
    """
    manifest = found.manifest
    if manifest is None:
        return
    made_with = manifest["tokenizer"]
    if made_with["content_hash"] != tokenizer.content_hash:
        known = made_with["name"] in KNOWN
        choice = made_with["name"] if known else f"custom tokenizer.path={SetFiles(found.path).tokenizer}"
        raise UserError(
            f"{found.path} was made with tokenizer {made_with['name']} (content "
            f"{made_with['content_hash'][:12]}), this run has tokenizer {tokenizer.name} (content "
            f"{tokenizer.content_hash[:12]}). Use tokenizer={choice}, or make the set again: "
            f"{command} --overwrite",
            code="tokenizer-differs",
        )
    if isinstance(tokenizer, JsonTokenizer) and found.documents is not None:
        files, truncation = SetFiles(found.path), tokenizer.definition.get("truncation")
        refuse_cut(found.name, manifest, files.tokenizer, found.documents, truncation=truncation)
    default = schema.Dataset()
    for name in _TEXT_KEYS:
        wanted, made = _text_option(dataset, name), manifest["options"].get(name)
        if wanted not in (getattr(default, name), made):
            raise UserError(
                f"{found.path} was made with {name} {made!r}, this run has dataset.{name}={wanted!r}. "
                f"Leave that out, or make the set again: {command} --overwrite",
                code="option-differs",
            )
    if stdlib is not None:
        _refuse(stdlib.differs(manifest["sources"], lambda *_: None), found, command)
    else:
        verify_text(found, place, command)


def verify_text(found: TokenSet, place: DatasetFiles, command: str) -> None:
    """Compare the set with the text next to it, if there is one. Raises UserError: they differ."""
    if found.manifest is not None and place.text is not None:
        files, sources = SetFiles(found.path), found.manifest["sources"]
        named = [source for source in sources if files.tokens.parent / source["path"] == place.text]
        if len(sources) > 1 and not named:
            return  # the text only happens to have the name
        fact = named[0] if named else (sources[0] if sources else {})
        _refuse(text_difference(place.text, fact, files), found, command)


def refuse_unused(dataset: schema.Dataset, sets: Sequence[Tokens]) -> None:
    """Refuse keys that would do nothing to the tokens that were found.

    Args:
        dataset: Of a run that reads nothing else.
        sets: One set, or train and val.

    Raises:
        UserError: With each such key.
    """
    default, problems = schema.Dataset(), []

    def refuse(name: str, why: str) -> None:
        problems.append(Problem(f"dataset.{name}", f"no effect: {why}", code="key-without-effect"))

    made = [manifest["options"] for one in sets if (manifest := getattr(one, "manifest", None)) is not None]
    for name in _TEXT_KEYS:
        wanted = _text_option(dataset, name)
        if wanted != getattr(default, name) and all(options.get(name) != wanted for options in made):
            refuse(name, f"it is for texts, and {sets[0].name} holds tokens. Remove it")
    for name in ("val_fraction", "val_tokens"):
        if len(sets) > 1 and getattr(dataset, name) != getattr(default, name):
            refuse(name, f"val is all of {sets[1].name}. Remove it")
    starts = sets[0].documents
    if dataset.documents != default.documents and starts is not None and len(starts) == 1:
        again = "Remove it, or tokenize again with --document-separator"
        refuse("documents", f"{sets[0].name} is one document. {again}")
    if problems:
        raise UserError(*problems)


def _text_option(dataset: schema.Dataset, name: str) -> object:
    value = getattr(dataset, name)
    return text_encoding(value) if name == "encoding" else value


def _refuse(difference: str | None, found: TokenSet, command: str) -> None:
    if difference:
        raise UserError(
            f"{found.path} does not belong to its text: {difference}. Make it again: {command} --overwrite",
            code="set-not-of-text",
        )
