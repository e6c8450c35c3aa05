"""The user's parts that this process knows, from the plugins that it was asked to use."""

from __future__ import annotations

from collections.abc import Iterable

from conf.own_parts.part import Part
from experiment_utils.errors import Problem, UserError

_PARTS: dict[str, Part] = {}
_PLUGINS: dict[str, str] = {}
_VERSION = [0]


def version() -> int:
    """A number that grows when parts are added: for caches that depend on them."""
    return _VERSION[0]


def part(name: str) -> Part | None:
    """The part of this name; None if no plugin registers it."""
    return _PARTS.get(name)


def parts(kind: str | None = None) -> list[Part]:
    """Parts of a kind, in the order in which they were read; None: all."""
    return [found for found in _PARTS.values() if kind in (None, found.kind)]


def names_at(path: str) -> list[str]:
    """Names of parts that are values of this config path, or items of its list."""
    return [found.name for found in _PARTS.values() if found.chosen_at == path]


def is_known(plugin: str) -> bool:
    """Whether the parts of this plugin have been added."""
    return plugin in _PLUGINS


def place_of(plugin: str) -> str:
    """File, folder or module that a plugin is read from: its copy, of a run that has one."""
    return _PLUGINS.get(plugin, plugin)


def add(plugin: str, place: str, found: Iterable[Part]) -> None:
    """Add the parts of a plugin that were read from a place.

    Raises:
        UserError: a name is registered twice, in this plugin or another.
    """
    problems = []
    for one in found:
        other = _PARTS.setdefault(one.name, one)
        if other is not one:
            what = f"{one.name} is registered twice: as {other.kind} in {other.place}, as {one.kind} in"
            problems.append(Problem("plugins", f"{what} {one.place}. Rename one", "registered-twice"))
    if problems:
        forget(plugin)
        raise UserError(*problems)
    _PLUGINS[plugin] = place
    _VERSION[0] += 1


def forget(plugin: str) -> None:
    """Remove the parts of a plugin, for tests and for a plugin that cannot be used."""
    for name in [name for name, one in _PARTS.items() if one.plugin == plugin]:
        del _PARTS[name]
    _PLUGINS.pop(plugin, None)
    _VERSION[0] += 1
