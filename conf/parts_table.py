"""Parts that the user registered in plugins, as their source describes them: the table of this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from conf.schema_key import Key
from experiment_utils.errors import Problem, UserError

KINDS = (
    "model", "arch_option", "optimizer", "schedule", "dataset", "tokenizer", "metric", "callback", "step",
)  # fmt: skip
"""Kinds of parts that can be registered: `highwater.register.KIND`."""

CHOSEN_AT = {
    "model": "arch.family",
    "optimizer": "optimizer.name",
    "schedule": "schedule.name",
    "dataset": "dataset.source",
    "tokenizer": "tokenizer.name",
    "step": "training.step",
}
"""Config path whose value is the name of the part in use."""

LISTED_AT = {"metric": "logging.metrics", "callback": "training.callbacks"}
"""Config path whose value is a list of the parts in use. They change no loss: not in a run's identity."""

ARCH_OPTIONS = ("activation",)
"""Keys of `arch` that take code of the user's: `register.arch_option("activation", NAME)`."""

OPTION_GROUPS = {
    "model": "arch", "optimizer": "optimizer", "schedule": "schedule", "dataset": "dataset",
    "tokenizer": "tokenizer",
}  # fmt: skip
"""Config group in which the part is an option: `optimizer=NAME`."""


@dataclass(frozen=True)
class Part:
    """A registration that was read from the source of a plugin."""

    kind: str
    """One of KINDS."""
    name: str
    """Name by which a configuration chooses it."""
    plugin: str
    """The plugin as it is recorded in config.yaml: an absolute path, or the name of a module."""
    file: Path
    """File of the registration."""
    line: int
    """Line of the registration in `file`, from 1."""
    options: tuple[Key, ...] = ()
    """Its options, as keys `own.NAME.OPTION`."""
    arch_key: str = ""
    """For an arch_option: the key of `arch` whose value it is."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def chosen_at(self) -> str:
        """Config path that chooses it, or that lists it."""
        if self.kind == "arch_option":
            return f"arch.{self.arch_key}"
        return CHOSEN_AT.get(self.kind) or LISTED_AT.get(self.kind, "")

    @property
    def typed_as(self) -> str:
        """Override that chooses it: `arch=mixer`, `training.callbacks=[probe]`."""
        if self.kind in OPTION_GROUPS:
            return f"{OPTION_GROUPS[self.kind]}={self.name}"
        return (
            f"{self.chosen_at}=[{self.name}]" if self.kind in LISTED_AT else f"{self.chosen_at}={self.name}"
        )


_PARTS: dict[str, Part] = {}
_PLUGINS: dict[str, tuple[str, object]] = {}
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


def is_known(plugin: str, content: object = None) -> bool:
    """Whether the parts of this plugin have been added.

    Args:
        content: stamp of its files; None: whatever they are.
    """
    return plugin in _PLUGINS and content in (None, _PLUGINS[plugin][1])


def place_of(plugin: str) -> str:
    """File, folder or module that a plugin is read from: its copy, of a run that has one."""
    return _PLUGINS[plugin][0] if plugin in _PLUGINS else plugin


def add(plugin: str, place: str, found: Iterable[Part], content: object = None) -> None:
    """Add the parts of a plugin that were read from a place, in place of those it had.

    Args:
        content: stamp of its files.

    Raises:
        UserError: a name is registered twice, in this plugin or another.
    """
    forget(plugin)
    problems = []
    for one in found:
        other = _PARTS.setdefault(one.name, one)
        if other is not one:
            what = f"{one.name} is registered twice: as {other.kind} in {other.place}, as {one.kind} in"
            problems.append(Problem("plugins", f"{what} {one.place}. Rename one", "registered-twice"))
    if problems:
        forget(plugin)
        raise UserError(*problems)
    _PLUGINS[plugin] = place, content
    _VERSION[0] += 1


def forget_others(plugins: Collection[str]) -> None:
    """Remove the parts of all plugins but these."""
    for plugin in [one for one in _PLUGINS if one not in plugins]:
        forget(plugin)


def forget(plugin: str) -> None:
    """Remove the parts of a plugin, for tests and for a plugin that cannot be used."""
    for name in [name for name, one in _PARTS.items() if one.plugin == plugin]:
        del _PARTS[name]
    _PLUGINS.pop(plugin, None)
    _VERSION[0] += 1
