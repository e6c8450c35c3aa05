"""Stand-ins for modules that ours import for annotations only: a third of a bare interpreter's memory.

`typing` is 2 MB, `inspect` (which dataclasses imports for classes without a docstring) 1.3, `pathlib` 0.7.
A stand-in knows the names that are imported at the top of a file; anything else that is asked of it
loads the real module, so that nothing can break by it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # which type checkers take for true, without an import of typing
    from typing import Any


class _Path:
    """Makes the real one."""

    def __new__(cls, *parts: Any) -> Any:
        return _real("pathlib").Path(*parts)


KNOWN: dict[str, dict[str, Any]] = {
    "typing": {name: object() for name in ("Any", "IO", "TextIO", "ClassVar", "Final", "Literal", "Self")}
    | {"TYPE_CHECKING": False, "_GenericAlias": object},
    "inspect": {},
    "pathlib": {"Path": _Path},
}


class Later(type(sys)):  # type: ignore[misc]
    """A module that is loaded when something unknown is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks, and makes do without
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


def spare() -> None:
    """Put them in place of modules that are not loaded yet."""
    for name, known in KNOWN.items():
        if name not in sys.modules:
            sys.modules[name] = Later(name)
            sys.modules[name].__dict__.update(known)


def _real(name: str) -> Any:
    if isinstance(sys.modules.get(name), Later):
        del sys.modules[name]
    __import__(name)
    return sys.modules[name]
