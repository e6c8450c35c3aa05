"""Processes of tests start without torch._dynamo, half of their CPU time, unless torch.compile needs it.

Each optimizer of torch imports it, to say that its methods are not compiled (fixture `quick_start`).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Unloaded(ModuleType):
    """Answers what optimizers ask; anything else loads the real module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)

    def disable(self, function: Any, *_: Any, **__: Any) -> Any:
        return function

    def graph_break(self) -> None:
        return


sys.modules["torch._dynamo"] = _Unloaded("torch._dynamo")
