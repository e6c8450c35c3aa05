"""Models and their loss. Importing this loads no torch; asking for one of the names below does,
except for what `models.options.counts` and `models.options.shape` have.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.loss.lm_loss import lm_loss, loss_implementation
    from models.loss.loss_chunk import resolve_loss_chunk
    from models.loss_model import LossModel
    from models.transformer import LanguageModel, build_model

__all__ = [
    "LanguageModel",
    "LossModel",
    "build_model",
    "lm_loss",
    "loss_implementation",
    "resolve_loss_chunk",
]

_HOME = {
    "LanguageModel": "transformer",
    "LossModel": "loss_model",
    "build_model": "transformer",
    "lm_loss": "loss.lm_loss",
    "loss_implementation": "loss.lm_loss",
    "resolve_loss_chunk": "loss.loss_chunk",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
