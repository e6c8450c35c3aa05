"""Models and their loss. Importing this loads no torch; asking for one of the names below does,
except for what `models.counts` and `models.shape` have.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.loss import lm_loss, loss_implementation
    from models.loss_chunk import resolve_loss_chunk
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
    "LanguageModel": "models.transformer",
    "LossModel": "models.loss_model",
    "build_model": "models.transformer",
    "lm_loss": "models.loss",
    "loss_implementation": "models.loss",
    "resolve_loss_chunk": "models.loss_chunk",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
