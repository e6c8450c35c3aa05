"""Files that the rules check, by room. Each file is read and parsed once."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule. The lists in `allowed/` hold the first three fields."""

    path: str  # file, folder or room, relative to the checkout
    rule: str
    count: int
    where: str = ""  # lines or names, for the message of a failing test only


@dataclass(frozen=True)
class Source:
    """One .py or .md file of the product."""

    path: str  # relative to the checkout, with forward slashes
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def module(self) -> str:
        """Dotted name under which this file is imported, such as `memory.explain`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """All statements of a Python file, nested ones too, except those that only type checkers see."""
        found: list[ast.stmt] = []
        to_visit: list[ast.AST] = [ast.parse(self.text)] if self.is_python else []
        while to_visit:
            node = to_visit.pop()
            if isinstance(node, ast.stmt):
                found.append(node)
            test = getattr(node, "test", None)
            for_type_checkers = "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))
            for block in (
                ("orelse",) if for_type_checkers else ("body", "orelse", "finalbody", "handlers", "cases")
            ):
                nested = getattr(node, block, ())
                to_visit += nested if isinstance(nested, list) else ()
        return found

    @cached_property
    def docstrings(self) -> list[tuple[int, str]]:
        """(line, text) of each string that is a statement, so also of documented attributes."""
        values = [node.value for node in self.statements if isinstance(node, ast.Expr)]
        constants = [value for value in values if isinstance(value, ast.Constant)]
        return [(value.lineno, value.value) for value in constants if isinstance(value.value, str)]

    @cached_property
    def public_classes(self) -> set[str]:
        """Names without a leading underscore of the classes at the top level of the file."""
        classes = [node for node in self.statements if isinstance(node, ast.ClassDef)]
        return {node.name for node in classes if node.col_offset == 0 and node.name[0] != "_"}

    @cached_property
    def imported_names(self) -> set[str]:
        """Dotted names in import statements, also those inside functions. `from a import b` gives `a.b`."""
        names: set[str] = set()
        for node in self.statements:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        return names


def rooms(root: Path) -> dict[str, list[Source]]:
    """Files of each room: the packages of pyproject.toml, `core` (top-level modules) and `docs`."""
    setuptools = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    paths = {"core": [root / f"{module}.py" for module in setuptools["py-modules"]]}
    for room in {package.split(".")[0] for package in setuptools["packages"]}:
        paths[room] = [path for path in (root / room).rglob("*") if path.suffix in {".py", ".md"}]
    paths["docs"] = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return {
        room: [
            Source(path.relative_to(root).as_posix(), _checked_text(path))
            for path in sorted(paths[room])
            if path.name != "style.md"  # quotes what it warns against
        ]
        for room in sorted(paths)
    }


def _checked_text(path: Path) -> str:
    """Text of the file. In CHANGELOG.md, the lines of released versions are blank."""
    text = path.read_text(encoding="utf-8")
    if path.name != "CHANGELOG.md":
        return text
    unreleased = re.search(r"^## \[?Unreleased.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return "\n" * text.count("\n", 0, unreleased.start()) + unreleased[0] if unreleased else ""
