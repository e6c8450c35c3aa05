"""Files of a plugin: a Python file, a folder, or an importable module. Nothing is imported to find them."""

from __future__ import annotations

import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path

from experiment_utils.errors import Problem, UserError

VARIABLE = "HIGHWATER_PLUGINS"
"""Environment variable with further plugins, separated as in PATH."""
ENTRY_POINTS = "highwater.plugins"
"""Group of entry points by which an installed package offers its plugins."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def plugins_around() -> list[str]:
    """Plugins of the environment variable and of installed packages."""
    typed = [one for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one.strip()]
    offered = [entry.value.partition(":")[0] for entry in metadata.entry_points(group=ENTRY_POINTS)]
    return [*typed, *sorted(offered)]


def recorded(plugin: str) -> str:
    """The plugin as config.yaml records it: the absolute path of a file or folder, or the name of a module.

    Raises:
        UserError: there is no such file, folder or module.
    """
    if is_path(plugin):
        path = Path(plugin).expanduser().absolute()
        if not path.exists():
            raise UserError(Problem("plugins", f"no such file or folder: {plugin}", "no-plugin"))
        if path.is_file() and path.suffix != ".py":
            raise UserError(Problem("plugins", f"{plugin}: expected a Python file (.py)", "plugin-no-python"))
        return str(path)
    if _MODULE.fullmatch(plugin) is None or _module_files(plugin) is None:
        there = [f"{plugin}.py"] if Path(f"{plugin}.py").is_file() else []
        meant = f"; there is a file {there[0]}: plugins=[{there[0]}]" if there else ""
        what = f"{plugin} is neither a file nor a module that can be imported{meant}"
        raise UserError(Problem("plugins", what, "no-plugin"))
    return plugin


def is_path(plugin: str) -> bool:
    """Whether it is a file or a folder rather than the name of a module."""
    return plugin.endswith(".py") or "/" in plugin or os.sep in plugin or Path(plugin).is_dir()


def files_of(plugin: str) -> list[Path]:
    """Python files of a recorded plugin, sorted; empty if it is gone."""
    if not is_path(plugin):
        return _module_files(plugin) or []
    path = Path(plugin)
    if path.is_file():
        return [path]
    found = path.rglob("*.py") if (path / "__init__.py").is_file() else path.glob("*.py")
    return sorted(one for one in found if "__pycache__" not in one.parts)


def _module_files(name: str) -> list[Path] | None:
    """Files of a module or package; None if it cannot be found. Its parents are not imported."""
    top, *inner = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    places = [Path(one) for one in spec.submodule_search_locations or ()]
    file = Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
    for part in inner:
        files = [one / f"{part}.py" for one in places if (one / f"{part}.py").is_file()]
        places = [] if files else [one / part for one in places if (one / part).is_dir()]
        inits = [one / "__init__.py" for one in places if (one / "__init__.py").is_file()]
        file = next(iter([*files, *inits]), None)
    if places:
        return sorted(one for place in places for one in place.rglob("*.py"))
    return [file] if file is not None else None
