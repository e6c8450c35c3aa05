"""Make the parts of plugins known to this process: their names as choices, their options as keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from conf import parts_table
from conf.keys import keys
from conf.option_files import options_of
from conf.own_parts.plugin_files import files_of, plugins_around, recorded
from conf.own_parts.read_source import read_parts
from conf.parts_table import OPTION_GROUPS, Part
from experiment_utils.errors import Problem, UserError


def use_plugins(
    plugins: Iterable[str],
    *,
    around: bool = True,
    copies: Mapping[str, Path] | None = None,
    only: bool = False,
) -> None:
    """Read the plugins and add their parts.

    Args:
        plugins: as typed, or as recorded in config.yaml.
        around: also those of HIGHWATER_PLUGINS and of installed packages.
        copies: recorded plugin to the file or folder to read in its place.
        only: forget all others, of an earlier request in this process.

    Raises:
        UserError: a plugin cannot be found or read, or a name is taken; all problems.
    """
    problems: list[Problem] = []
    copies = copies or {}
    wanted = list(dict.fromkeys([*plugins, *(plugins_around() if around else [])]))
    if only:
        parts_table.forget_others(_as_recorded(wanted))
    for typed in wanted:
        try:
            plugin = typed if typed in copies or parts_table.is_known(typed) else recorded(typed)
            place = str(copies.get(plugin) or parts_table.place_of(plugin))
            files = files_of(place)
            stamps = [(one.stat().st_mtime_ns, one.stat().st_size) for one in files]
            if not parts_table.is_known(plugin, stamps):
                found = read_parts(plugin, files)
                parts_table.forget(plugin)
                problems += [problem for one in found for problem in _taken(one)]
                parts_table.add(plugin, place, found, stamps)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(*problems)


def _as_recorded(plugins: Iterable[str]) -> set[str]:
    names = {*plugins}
    for one in [*names]:
        with suppress(UserError):
            names.add(recorded(one))
    return names


def _taken(part: Part) -> list[Problem]:
    """The problem of a name that is one of ours."""
    key = keys().get(part.chosen_at)
    group = OPTION_GROUPS.get(part.kind)
    ours = {*(key.choices or () if key is not None else ())} - {*parts_table.names_at(part.chosen_at)}
    ours |= set(options_of(group)) if group is not None else set()
    if part.name not in ours:
        return []
    return [Problem(part.place, f"{part.kind} {part.name}: the name is one of ours. Rename it", "name-taken")]
