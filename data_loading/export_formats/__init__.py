"""Token sets as other programs read them: one file a format, each with its writer and its reader.

A format is chosen by its name, that of the project that reads it. What each needs is imported with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.export_formats.exporter import Format

FORMATS = {
    "megatron": "write_megatron",
    "nanogpt": "write_nanogpt",
    "llm.c": "write_llm_c",
    "mypt": "write_mypt",
}
"""Name to the file of this package that holds it."""


def load_format(name: str) -> Format:
    """The format of a name in `FORMATS`."""
    return importlib.import_module(f"data_loading.export_formats.{FORMATS[name]}").FORMAT


def formats_of(given: str | None) -> list[Format]:
    """The formats of a list such as `megatron,nanogpt`, each once, in the order given; none for None.

    Raises:
        UserError: names that are none, all at once, with the choices.
    """
    names = [] if given is None else [name.strip() for name in given.split(",")]
    unknown = [name for name in dict.fromkeys(names) if name not in FORMATS]
    if unknown:
        raise UserError(
            *(f"--format {name or repr(name)}: choices are {', '.join(FORMATS)}" for name in unknown),
            code="export-format-unknown",
        )
    return [load_format(name) for name in dict.fromkeys(names)]
