"""Write docs/config.md, the page of every group, option and key, from conf/.

python docs/write_config.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from conf.command_line.help import describe_option, shown
from conf.keys import Key, groups, keys_of
from conf.option_files import default_options, options_of
from conf.values import describe

PAGE = ROOT / "docs" / "config.md"
START = """\
# Configuration keys

<!-- Written by docs/write_config.py from conf/. Change a key in conf/schema.py and its parts. -->

Look up a group, its options, and each key with its default and its values. [Configure](configure.md) shows
how to type them, and `python experiments.py --help KEY` prints the same in a terminal. Defaults are those of
the schema; an option can set another one.
"""


def page() -> str:
    """The whole page."""
    parts = [START, "## Keys outside of the groups\n", _keys("")]
    for group in groups():
        parts += [f"## {group}\n", _options(group), _keys(group)]
    return "\n".join(filter(None, parts))


def _options(group: str) -> str:
    default, options = default_options().get(group), options_of(group)
    if set(options) == {"default"}:
        return ""
    rows = [
        (f"`{group}={name}`" + (" (default)" if name == default else ""), describe_option(group, name, file))
        for name, file in options.items()
    ]
    return _table(("option", "what"), rows)


def _keys(group: str) -> str:
    return _table(("key", "default", "values", "meaning"), [_row(key) for key in keys_of(group)])


def _row(key: Key) -> tuple[str, ...]:
    return f"`{key.path}`", f"`{shown(key.default)}`", describe(key), key.doc


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
