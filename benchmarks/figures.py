"""Write docs/figures.md and its pictures from the saved results, so that no figure there was copied by hand.

The page is benchmarks/figures.md.jinja, filled with the results in benchmarks/results/.

    python benchmarks/figures.py [NAME.png ...]    # the page and all pictures, or these pictures only
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jinja2

from benchmarks import lr_transfer
from benchmarks.gpu import summary as gpu
from benchmarks.harness import BENCHMARKS, RESULTS, ROOT

PAGE = ROOT / "docs" / "figures.md"


def read(name: str) -> dict[str, Any]:
    """A saved result."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def listed(numbers: Iterable[int]) -> str:
    """Numbers once each, as text: 1, 2 and 3."""
    *most, last = map(str, sorted(set(numbers)))
    return f"{', '.join(most)} and {last}" if most else last


class _Environment(jinja2.Environment):
    """Keys of a result come before the methods of its dictionaries."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return (
            obj[attribute] if isinstance(obj, dict) and attribute in obj else super().getattr(obj, attribute)
        )


def page() -> str:
    """The whole page."""
    loader = jinja2.FileSystemLoader(BENCHMARKS)
    environment = _Environment(
        loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "f": lambda value, form: "" if value is None else format(value, form),
        "mb": lambda size: f"{size / 1e6:,.0f} MB",
        "first_upper": lambda text: text[0].upper() + text[1:],
        "first_of_each": lambda of, key: {name: next(iter(one.values()))[key] for name, one in of.items()},
        "farthest": lambda values: max(values, key=abs),
        "listed": listed,
    }
    template = environment.get_template("figures.md.jinja")
    made = template.render(
        read=read,
        gpu=gpu.page,
        transfer=lr_transfer.transfer,
        yes=lambda met: "yes" if met else "no",
        dict=dict,
    )
    return made.rstrip("\n") + "\n"


if __name__ == "__main__":
    from benchmarks.pictures import draw

    if not sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    for path in draw(*sys.argv[1:]):
        print(f"wrote {path.relative_to(ROOT)}")
