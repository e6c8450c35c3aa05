"""Does this token set belong to that text and that tokenizer? If not, say both sides and what mends it."""

from __future__ import annotations

from conf import schema
from data_loading.find.locate import Place
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.text_io.single_stream import text_encoding
from data_loading.tokenizers.load import KNOWN
from data_loading.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.text_difference import text_difference
from data_loading.tokens.token_set import TokenSet
from data_loading.tokens.truncated_documents import refuse_cut
from experiment_utils.errors import UserError


def verify(
    found: TokenSet,
    dataset: schema.Dataset,
    place: Place,
    tokenizer: Tokenizer,
    stdlib: StdlibSource | None,
    command: str,
) -> None:
    """Hold a set's manifest against the text beside it, the tokenizer and the options of the run.

    stdlib: the source as it is now, for dataset=stdlib. command: what makes the set anew. A set
    without manifest was checked when it was opened, as far as that is possible. Options that the
    configuration leaves at their default are taken from the set.

    Raises:
        UserError: something differs.
    """
    manifest = found.manifest
    if manifest is None:
        return
    there = manifest["tokenizer"]
    if there["content_hash"] != tokenizer.content_hash:
        known = there["name"] in KNOWN
        ask = there["name"] if known else f"custom tokenizer.path={SetFiles(found.path).tokenizer}"
        raise UserError(
            f"{found.path} was made with tokenizer {there['name']} (content "
            f"{there['content_hash'][:12]}), this run asks for {tokenizer.name} (content "
            f"{tokenizer.content_hash[:12]}). Ask for tokenizer={ask}, or make the set anew: "
            f"{command} --overwrite",
            code="tokenizer-differs",
        )
    if isinstance(tokenizer, JsonTokenizer) and found.documents is not None:
        files, truncation = SetFiles(found.path), tokenizer.definition.get("truncation")
        refuse_cut(found.name, manifest, files.tokenizer, found.documents, truncation=truncation)
    default = schema.Dataset()
    for name in ("document_separator", "encoding", "errors"):
        wanted, made = getattr(dataset, name), manifest["options"].get(name)
        if name == "encoding":
            wanted = text_encoding(wanted)
        if wanted != getattr(default, name) and wanted != made:
            raise UserError(
                f"{found.path} was made with {name} {made!r}, this run says dataset.{name}={wanted!r}. "
                f"Leave that out, or make the set anew: {command} --overwrite",
                code="option-differs",
            )
    if stdlib is not None:
        _refuse(stdlib.differs(manifest["sources"], lambda *_: None), found, command)
    else:
        verify_text(found, place, command)


def verify_text(found: TokenSet, place: Place, command: str) -> None:
    """Hold the set against the text beside it, where there is one. Raises UserError."""
    if found.manifest is not None and place.text is not None:
        files, sources = SetFiles(found.path), found.manifest["sources"]
        named = [source for source in sources if files.tokens.parent / source["path"] == place.text]
        if len(sources) > 1 and not named:
            return  # the text only happens to have the name
        fact = named[0] if named else (sources[0] if sources else {})
        _refuse(text_difference(place.text, fact, files), found, command)


def _refuse(difference: str | None, found: TokenSet, command: str) -> None:
    if difference:
        raise UserError(
            f"{found.path} does not belong to its text: {difference}. Make it anew: {command} --overwrite",
            code="set-not-of-text",
        )
