"""The options in docs/models.md have the keys and choices of the schema, which are those of the code."""

from __future__ import annotations

from dataclasses import fields

from conf.schema import Arch
from tests.models.options_table import OPTIONS

WITHOUT_A_ROW = {"name", "max_positions"}
TOLD_WITH_ANOTHER = {
    "rope_factor",
    "rope_original_positions",
    "rope_low_frequency",
    "rope_high_frequency",
    "base_width",
    "base_layers",
}
"""Keys that the rows of other keys name."""


def test_every_key_of_the_schema_has_rows_of_all_its_choices_and_the_default_comes_first() -> None:
    for field in fields(Arch):
        if field.name in WITHOUT_A_ROW | TOLD_WITH_ANOTHER:
            continue
        rows = list(OPTIONS[field.name])
        choices = field.metadata["choices"]
        if choices is not None:
            assert rows[0] == field.default
            assert set(rows) == set(choices)
        elif isinstance(field.default, bool):
            assert rows == [str(field.default).lower(), str(not field.default).lower()]
        else:
            assert rows[0] == ("null" if field.default is None else "number")
    assert set(OPTIONS) == {f.name for f in fields(Arch)} - WITHOUT_A_ROW - TOLD_WITH_ANOTHER


def test_keys_without_rows_are_told_in_those_of_others() -> None:
    told = " ".join(meaning for rows in OPTIONS.values() for meaning in rows.values())
    assert {name for name in TOLD_WITH_ANOTHER if f"arch.{name}" not in told} == set()


def test_every_choice_has_its_code() -> None:
    from models.families import FAMILIES
    from models.initialization import INITS
    from models.layers.blocks import BLOCKS
    from models.layers.feedforward import ACTIVATIONS
    from models.layers.norms import NORMS
    from models.layers.positions import POSITIONS
    from models.layers.rotary import SCALINGS
    from models.options.activations import ACTIVATIONS as COSTS
    from models.options.counts import NORMS_OF_BLOCK
    from models.options.family_keys import MEANINGLESS
    from models.options.option_conflicts import COMBINATIONS

    choices = {field.name: set(field.metadata["choices"] or ()) for field in fields(Arch)}
    assert choices["family"] == set(FAMILIES) == set(MEANINGLESS) == set(COMBINATIONS)
    assert choices["norm"] == set(NORMS)
    assert choices["norm_position"] == set(BLOCKS) == set(NORMS_OF_BLOCK)
    assert choices["final_norm"] == {*NORMS, "same"}
    assert choices["positions"] == set(POSITIONS)
    assert choices["rope_scaling"] == set(SCALINGS)
    assert choices["init"] == set(INITS)
    assert choices["activation"] == set(ACTIVATIONS)
    assert choices["activation"] == set(COSTS)
