"""Highwater as a package: what users import, and the commands of `highwater`.

Importing it loads nothing else: each name loads what it needs when it is asked for. In a checkout the rooms
(`conf`, `data_loading`, `memory`, ...) are at the top level; in an installed wheel they are in this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.notebook import read_study as read_study
    from conf.own_parts import register as register
    from conf.own_parts.option import option as option
    from data_loading import StreamingDataset as StreamingDataset
    from data_loading import open_stream as open_stream
    from data_loading import open_tokens as open_tokens
    from data_loading import pretokenize as pretokenize
    from experiment_utils.errors import UserError as UserError
    from highwater.python_api import plan as plan
    from highwater.python_api import run as run
    from highwater.python_api import sweep as sweep
    from memory import record_to as record_to
    from memory import stage as stage

_HERE = Path(__file__).resolve().parent
IS_INSTALLED = (_HERE / "core.py").exists()
"""Whether this is an installed wheel, whose rooms are in this package."""

_PLACES = {
    "StreamingDataset": "data_loading",
    "UserError": "experiment_utils.errors",
    "main": "highwater.__main__",  # the name in console scripts of installs before
    "open_stream": "data_loading",
    "open_tokens": "data_loading",
    "option": "conf.own_parts.option",
    "plan": "highwater.python_api",
    "pretokenize": "data_loading",
    "read_study": "analysis.notebook",
    "record_to": "memory",
    "run": "highwater.python_api",
    "stage": "memory",
    "sweep": "highwater.python_api",
}

_MODULES = {"register": "conf.own_parts.register"}

__all__ = ["__version__", *(name for name in (*_PLACES, *_MODULES) if name != "main")]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return room("experiment_utils.modules").version()
    if name in _MODULES:
        return room(_MODULES[name])
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(room(_PLACES[name]), name)


def room(name: str) -> Any:
    """Import one of our modules by its name in a checkout, whatever modules of that name the user has.

    In a checkout a memory.py of the user's can come first on the path: then ours is put before it.
    """
    if IS_INSTALLED:
        return importlib.import_module(name if name.startswith("highwater.") else f"{__name__}.{name}")
    for top in dict.fromkeys((name.partition(".")[0], "conf", "core", "models")):
        found = importlib.util.find_spec(top)
        place = Path(found.origin).resolve() if found is not None and found.origin is not None else Path("/")
        if not place.is_relative_to(_HERE.parent):
            sys.path.insert(0, str(_HERE.parent))
            break
    return importlib.import_module(name)
