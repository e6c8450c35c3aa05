"""Write token sets in formats of other programs: one file a format, chosen by the name of the project.

The layouts are those of `import_formats`, whose readers read exports back.
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
"""Module of this package by the name of the format."""


def load_format(name: str) -> Format:
    """Return the format with a name in `FORMATS`."""
    return importlib.import_module(f"{__name__}.{FORMATS[name]}").FORMAT


def formats_of(given: str | None) -> list[Format]:
    """Return the formats of a list such as `megatron,nanogpt`, each once, in order; none for None.

    Raises:
        UserError: Unknown names, all in one error.
    """
    names = [] if given is None else [name.strip() for name in given.split(",")]
    unknown = [name for name in dict.fromkeys(names) if name not in FORMATS]
    if unknown:
        raise UserError(
            *(f"--format {name or repr(name)}: choices are {', '.join(FORMATS)}" for name in unknown),
            code="export-format-unknown",
        )
    return [load_format(name) for name in dict.fromkeys(names)]
