"""What Hydra says of a defaults list that it cannot follow, in this program's words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.keys import groups
from conf.suggestions import natural, nearest, no_such
from experiment_utils.errors import Problem

if TYPE_CHECKING:
    from hydra._internal.config_repository import IConfigRepository

_OF_FILE = re.compile(r"(?:In|Invalid defaults list in) '(?P<file>[^']+)'[:,] (?P<what>.*)", re.DOTALL)
_OVERRIDES = re.compile(r"Could not override '(?P<group>[^'@]+)")


def problem_of(error: Exception, text: str, files: IConfigRepository, composed: Iterable[str]) -> Problem:
    """The problem that an error of Hydra's composition tells.

    text: its first line. composed: config paths (`study/mine`) of the files that were chosen, to find
    the one whose list it is: Hydra blames the main file for an override that stands in another.
    """
    if isinstance(error, UnicodeDecodeError):
        file = next((file for file in (_file(files, path) for path in composed) if not _is_text(file)), "")
        return Problem(
            file,
            f"is no YAML in UTF-8 ({error.reason}). Text in UTF-16: iconv -f UTF-16 -t UTF-8 {file} > OUT",
        )
    found = _OF_FILE.match(text)
    at, what = (found["file"], found["what"]) if found else (None, text)
    missing = getattr(error, "missing_cfg_file", None)
    overridden = _OVERRIDES.match(what)
    if missing:
        group, _, option = missing.rpartition("/")
        asking = (path for path in composed if _asks(files, path, lambda entry: _names(entry, group, option)))
        at, what = next(asking, at), _no_such_option(files, group, option)
    elif overridden:
        what = _cannot_override(overridden["group"])
    return Problem(_file(files, at) if at else "", f"its defaults list: {what}")


def shown_path(file: Path) -> str:
    """Relative to where the user stands, where it is below."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative


def _no_such_option(files: IConfigRepository, group: str, option: str) -> str:
    options = sorted(files.get_group_options(group), key=natural)
    if options:
        return f"{group}: {no_such('option', option, options)}"
    return f"there is no {group}/{option}.yaml, and no group `{group}`; {_groups_like(group)}"


def _cannot_override(group: str) -> str:
    if group in groups():
        return (
            f"it overrides {group}, which is no part of its own group; write `override "
            f"/{group}@_global_.{group}: NAME`, or begin a file for all groups with `# @package _global_`"
        )
    return f"it overrides {group}, but there is no such group; {_groups_like(group)}"


def _groups_like(group: str) -> str:
    close = nearest(group, groups())
    return f"nearest: {', '.join(close)}" if close else f"choices: {' '.join(groups())}"


def _asks(files: IConfigRepository, config_path: str, is_it: Callable[[Any], bool]) -> bool:
    loaded = files.load_config(config_path)
    return loaded is not None and any(is_it(entry) for entry in loaded.defaults_list or [])


def _names(entry: Any, group: str, option: str) -> bool:
    """Whether an entry of a defaults list asks for the option; one without a group is of its file's own."""
    value = getattr(entry, "value", None)
    if option not in (value if isinstance(value, list) else [value, getattr(entry, "path", None)]):
        return False
    return str(getattr(entry, "group", None) or group).lstrip("/") == group


def _is_text(file: str) -> bool:
    try:
        Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    except OSError:
        pass
    return True


def _file(files: IConfigRepository, config_path: str) -> str:
    """The yaml file of a config path, where it can be loaded."""
    for source in files.get_sources():
        if source.scheme() == "file" and source.is_config(config_path):
            return shown_path(Path(source.path) / f"{config_path}.yaml")
    return f"{config_path}.yaml"
