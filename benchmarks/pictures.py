"""Pictures of docs/images that show saved results. Each holds the digest of the result that it shows.

python benchmarks/pictures.py [NAME.png ...]    # draws these, or all
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import RESULTS
from memory.report.drawing import DPI, own_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = ROOT / "docs" / "images"
_KEY = "Result"
"""Name of the text in the file that holds the digest."""


def pictures() -> dict[str, tuple[str, Callable[[dict[str, Any]], Figure]]]:
    """Name of each picture -> the result that it shows, and what draws it."""
    from benchmarks import lr_transfer, memory_leaks, mup_coordinates
    from benchmarks.loading_parts import pictures as loading
    from benchmarks.tokenizing_parts import pictures as tokenizing
    from benchmarks.training_parts import report

    return {
        "training_speed.png": ("training_speed", report.figure),
        "mup_coordinates.png": ("mup_coordinates", mup_coordinates.figure),
        "lr_transfer.png": ("lr_transfer", lr_transfer.figure),
        "memory-leaks.png": ("memory_leaks", memory_leaks.figure),
        "loading_speed.png": ("loading", loading.speed_figure),
        "loading_memory.png": ("loading", loading.memory_figure),
        "tokenizing_speed.png": ("tokenizing", tokenizing.speed_figure),
        "tokenizing_memory.png": ("tokenizing_memory", tokenizing.memory_figure),
    }


def draw(*names: str, folder: Path = IMAGES) -> list[Path]:
    """Write these pictures, or all, from the saved results; returns their paths."""
    drawn = []
    for name in names or pictures():
        result, figure = pictures()[name]
        found = json.loads((RESULTS / f"{result}.json").read_text(encoding="utf-8"))
        with own_style():
            figure(found).savefig(folder / name, format="png", dpi=DPI, metadata={_KEY: digest(found)})
        drawn.append(folder / name)
    return drawn


def digest(found: dict[str, Any]) -> str:
    """SHA-256 of a result, whatever its layout in the file."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def shown_digest(path: Path) -> str | None:
    """Digest of the result that a picture shows; None: it was drawn before pictures had one."""
    from PIL import Image

    with Image.open(path) as image:
        return image.info.get(_KEY)


if __name__ == "__main__":
    for path in draw(*sys.argv[1:]):
        print(f"wrote {path.relative_to(ROOT)}")
