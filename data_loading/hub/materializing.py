"""A dataset of the hub, tokenized once into a token set below `Datasets/`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from data_loading.find.locate import DEFAULT_FOLDER
from data_loading.hub.hub_uri import PREFIX, HubName, parse
from data_loading.hub.named_datasets import REGISTRY
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lock_file
from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError

_log = logging.getLogger("data_loading")
_LONGEST_WAIT_S = 7 * 86400.0


def hub_source(source: str) -> str:
    """`hf://...` of what a user typed: that, or a name of the registry.

    Raises:
        UserError: neither.
    """
    if source.startswith(PREFIX):
        return source
    if source in REGISTRY:
        return f"{PREFIX}{source}"
    raise UserError(
        f"{source}: expected hf://ORG/NAME[:CONFIG][@REVISION], or one of {', '.join(REGISTRY)}",
        code="hub-name-invalid",
    )


def usual_place(name: HubName) -> Path:
    """Where a run looks for its tokens."""
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
    """Read a dataset of the hub to its end, or to a limit, and keep its tokens.

    What was begun is gone on with; a set that is up to date is left alone; where another process makes it,
    this one waits. Memory does not grow with the dataset. output: None: `Datasets/NAME.npy`, where runs look.

    Raises:
        UserError: the hub cannot be reached, has no such dataset, or the set there is another one.
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
            log(f"{held.what} is being made by {held.holder}; waiting for it")
            with lock_file.lock(SetFiles(place).lock, f"token set {place}", wait_s=_LONGEST_WAIT_S):
                pass
