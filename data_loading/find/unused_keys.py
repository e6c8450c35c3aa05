"""Keys of `dataset=` that would do nothing to the tokens that were found are refused."""

from __future__ import annotations

from collections.abc import Sequence

from conf import schema
from data_loading.text_io.single_stream import text_encoding
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import Problem, UserError

_OF_TEXTS = ("document_separator", "encoding", "errors")


def refuse_unused(dataset: schema.Dataset, sets: Sequence[Tokens]) -> None:
    """Refuse what has no effect.

    Args:
        dataset: Of a run that reads nothing else.
        sets: What was found: one set, or train and val.

    Raises:
        UserError: With each such key.
    """
    default, problems = schema.Dataset(), []
    made = [manifest["options"] for one in sets if (manifest := getattr(one, "manifest", None)) is not None]
    for name in _OF_TEXTS:
        wanted = text_encoding(dataset.encoding) if name == "encoding" else getattr(dataset, name)
        if wanted != getattr(default, name) and all(options.get(name) != wanted for options in made):
            problems.append(
                Problem(
                    f"dataset.{name}",
                    f"it is of texts, and {sets[0].name} holds tokens: it would do nothing. Take it away",
                    code="key-without-effect",
                )
            )
    for name in ("val_fraction", "val_tokens"):
        if len(sets) > 1 and getattr(dataset, name) != getattr(default, name):
            problems.append(
                Problem(
                    f"dataset.{name}",
                    f"val is all of {sets[1].name}, so that it would do nothing. Take it away",
                    code="key-without-effect",
                )
            )
    starts = sets[0].documents
    if dataset.documents != default.documents and starts is not None and len(starts) == 1:
        problems.append(
            Problem(
                "dataset.documents",
                f"{sets[0].name} is one document: {dataset.documents} would do nothing. Take it away, or "
                "tokenize again with --document-separator",
                code="key-without-effect",
            )
        )
    if problems:
        raise UserError(*problems)
