"""nanoGPT's meta.pkl, read without running anything that is in it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NoReturn

from experiment_utils.errors import UserError

_MOST_BYTES = 64 << 20


class _Plain(pickle.Unpickler):
    """Unpickle numbers, texts, lists and dicts. Anything that needs an import is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"it imports {module}.{name}; only numbers, texts, lists and dicts are read"
        )


def read_vocab_size(path: Path) -> int | None:
    """Return `vocab_size` of a meta.pkl, None if the file does not exist.

    Raises:
        UserError: It is damaged, or holds more than plain values.
    """
    fix = "Write it again with plain numbers and texts, or remove it"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(
                f"{path} has {path.stat().st_size:,} bytes, which is no meta.pkl. {fix}",
                code="meta-pickle-too-large",
            )
        with open(path, "rb") as file:
            meta: Any = _Plain(file).load()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", code="file-unreadable") from error
    except UserError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(f"{path} cannot be read: {error}. {fix}", code="meta-pickle-unreadable") from None
    found = meta.get("vocab_size") if isinstance(meta, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UserError(f"{path} has no vocab_size. {fix}", code="meta-pickle-no-vocabulary")
    return found
