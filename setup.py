"""Build step of the wheel: rooms, entries and core.py go below `highwater/`, and import each other there.

In a checkout and an editable install they are at the top level, where users know them. Installed beside a
project that has its own conf/, core.py or memory.py, top-level names would be taken for the other's.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

AT_THE_TOP = ("highwater", "hydra_plugins")


class BelowHighwater(build_py):
    """Copies modules as setuptools does, then moves those at the top level below `highwater/`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            move_below_highwater(Path(self.build_lib))


def move_below_highwater(folder: Path) -> None:
    """Move each module and package of a folder below its `highwater/`, and prefix imports of them."""
    moved = [path for path in folder.iterdir() if path.name not in AT_THE_TOP]
    names = {path.stem for path in moved}
    for path in moved:
        target = folder / "highwater" / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        path.write_text(with_prefix(text, names, str(path)), encoding="utf-8")


def with_prefix(text: str, names: set[str], path: str) -> str:
    """The source with `highwater.` before each of these names in imports.

    Raises:
        SyntaxError: `import NAME` without `as` binds a name that code uses: write `from NAME import ...`.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            tops = {alias.name.partition(".")[0] for alias in node.names if alias.asname is None}
            if tops & names:
                raise SyntaxError(f"{path}:{node.lineno}: import of {tops & names}: write from ... import")
            modules = [alias.name for alias in node.names if alias.name.partition(".")[0] in names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [node.module] if node.module.partition(".")[0] in names else []
        else:
            continue
        for module in modules:
            place = lines[node.lineno - 1].index(module, node.col_offset)
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = f"{line[:place]}highwater.{line[place:]}"
    return "".join(lines)


setup(cmdclass={"build_py": BelowHighwater})
