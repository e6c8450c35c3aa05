"""materialize: a dataset of the hub, tokenized once into a token set below `Datasets/`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from data_loading.hub.hub_uri import HubName, hub_source, parse
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.file_names import DEFAULT_FOLDER
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lock_file
from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError

_log = logging.getLogger("data_loading")
_LONGEST_WAIT_S = 7 * 86400.0


def usual_place(name: HubName) -> Path:
    """Return the path at which a run looks for its tokens."""
    return DEFAULT_FOLDER / f"{name.short}.npy"


def materialize(
    source: str,
    tokenizer: str | Tokenizer = "gpt2",
    output: str | Path | None = None,
    *,
    split: str | None = None,
    text_field: str | None = None,
    max_tokens: int | None = None,
    max_documents: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    log: Callable[[str], None] = _log.info,
) -> Result:
    """Tokenize a dataset of the hub to its end, or to a limit.

    An interrupted call is resumed by the next one. A set that is up to date is left alone. If another process
    makes it, this one waits. Memory does not grow with the dataset.

    Args:
        source: `hf://...`, or a name of `list_datasets`.
        tokenizer: Name, folder, or what `load_tokenizer` returned.
        output: Path that ends in .npy; None: `Datasets/NAME.npy`, where runs look.
        split: Split of the dataset; None: train.
        text_field: Field of its rows with the text.
        max_tokens: End with the document of this token.
        max_documents: End after this number of documents.
        workers: Of the pretokenizer.
        overwrite: Replace a set made from something else.
        log: Takes lines about the progress.

    Raises:
        UserError: the hub cannot be reached or has no such dataset, or the set there is another one.
    """
    argument = hub_source(source)
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_tokenizer(tokenizer_spec(tokenizer))
    place = Path(output).expanduser() if output is not None else usual_place(parse(argument))
    if place.suffix != ".npy":
        raise UserError(f"--output {place}: expected a name that ends in .npy", code="output-not-npy")
    options = InputOptions(
        split=split, text_field=text_field, max_tokens=max_tokens, max_documents=max_documents
    )
    inputs = open_inputs([argument], options)
    how = Options(
        workers=workers, overwrite=overwrite, terminal=sys.stderr if can_rewrite(sys.stderr) else None
    )
    while True:
        try:
            return pretokenize(inputs, tokenizer, place, how, log)
        except lock_file.LockHeld as held:
            log(f"{held.what} is being made by {held.holder}; waiting")
            with lock_file.lock(SetFiles(place).lock, f"token set {place}", wait_s=_LONGEST_WAIT_S):
                pass
