"""Registrations of a plugin and their options, read from its source without running it.

A registration is a decorator `@register.KIND("name", ...)` of a function or class at the top level of a file,
or the same call as a statement there. Its options are a dataclass of the same file, whose fields have plain
types and literal defaults, or `option(DEFAULT, "meaning", ...)` with literal arguments.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conf.parts_table import ARCH_OPTIONS, KINDS, Part
from conf.schema_key import Key, key
from conf.suggestions import nearest, or_list
from conf.values import convert
from experiment_utils.errors import Problem, UserError

_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "list[str]": list}
_NAME = re.compile(r"[A-Za-z][\w-]*")
_KEY_FACTS = ("kind", "choices", "above", "at_least", "at_most", "below")


def read_parts(plugin: str, files: list[Path]) -> list[Part]:
    """Parts that the files of a plugin register.

    Args:
        plugin: as it is recorded in config.yaml.

    Raises:
        UserError: a file has a syntax error, or a registration cannot be read; names FILE:LINE.
    """
    found: list[Part] = []
    problems: list[Problem] = []
    for file in files:
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"{file}:{line}" if line else str(file)
            problems.append(Problem(where, f"{getattr(error, 'msg', error)}", "plugin-syntax"))
            continue
        except OSError as error:
            problems.append(Problem(str(file), error.strerror or str(error), "plugin-unreadable"))
            continue
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for call in _registrations(tree, _aliases(tree)):
            try:
                found.append(_part(plugin, file, call, classes))
            except _Wrong as wrong:
                problems.append(Problem(f"{file}:{wrong.line}", wrong.what, "plugin-registration"))
    if problems:
        raise UserError(*problems)
    return found


class _Wrong(Exception):
    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.line, self.what = getattr(node, "lineno", 0), what


def _aliases(tree: ast.Module) -> set[str]:
    """Names of highwater's `register` in this file: `register`, `highwater.register`, `hw.register`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "highwater" and not node.level:
            names |= {one.asname or one.name for one in node.names if one.name == "register"}
        elif isinstance(node, ast.Import):
            names |= {f"{one.asname or one.name}.register" for one in node.names if one.name == "highwater"}
    return names


def _registrations(tree: ast.Module, aliases: set[str]) -> Iterator[ast.Call]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            candidates: list[ast.expr] = node.decorator_list
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            candidates = [node.value.func]  # register.model("mixer")(Mixer)
        else:
            continue
        for one in candidates:
            is_call = isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
            if is_call and ast.unparse(one.func.value) in aliases:  # type: ignore[attr-defined]
                yield one  # type: ignore[misc]


def _part(plugin: str, file: Path, call: ast.Call, classes: dict[str, ast.ClassDef]) -> Part:
    assert isinstance(call.func, ast.Attribute)
    kind = call.func.attr
    if kind not in KINDS:
        close = nearest(kind, KINDS)
        raise _Wrong(call, f"no register.{kind}; choices: {or_list(close or KINDS)}")
    texts = [_literal(one, "a name") for one in call.args]
    expected = 2 if kind == "arch_option" else 1
    if len(texts) != expected or not all(isinstance(one, str) for one in texts):
        form = f'register.{kind}("activation", "NAME")' if expected == 2 else f'register.{kind}("NAME")'
        raise _Wrong(call, f"expected {form}, with the names as literal text")
    name = texts[-1]
    if _NAME.fullmatch(name) is None:
        raise _Wrong(call, f"{name!r} is no name: expected letters, digits, _ and -, beginning with a letter")
    arch_key = texts[0] if expected == 2 else ""
    if arch_key and arch_key not in ARCH_OPTIONS:
        raise _Wrong(
            call, f"arch.{arch_key} takes no part of one's own; those that do: {or_list(ARCH_OPTIONS)}"
        )
    options: tuple[Key, ...] = ()
    for word in call.keywords:
        if word.arg == "options" and not (isinstance(word.value, ast.Constant) and word.value.value is None):
            options = tuple(_options(name, word.value, classes))
    return Part(kind, name, plugin, file, call.lineno, options, arch_key)


def _literal(node: ast.expr, what: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        text = f"{ast.unparse(node)} is not literal: {what} is read without running the file"
        raise _Wrong(node, text) from None


def _options(name: str, node: ast.expr, classes: dict[str, ast.ClassDef]) -> Iterator[Key]:
    section = classes.get(node.id) if isinstance(node, ast.Name) else None
    if section is None:
        raise _Wrong(node, f"options={ast.unparse(node)}: expected a dataclass of this file")
    if not any(
        _last(one.func if isinstance(one, ast.Call) else one) == "dataclass" for one in section.decorator_list
    ):
        raise _Wrong(section, f"{section.name} is no dataclass: put @dataclass before it")
    if section.bases:
        raise _Wrong(section, f"{section.name}: options inherit from no other class")
    for field in section.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield _key(f"own.{name}.{field.target.id}", field)


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _key(path: str, field: ast.AnnAssign) -> Key:
    hint = ast.unparse(field.annotation).strip("'\"")
    words = [one.strip() for one in hint.split("|")]
    kinds = tuple(_TYPES[one] for one in words if one in _TYPES)
    optional = "None" in words
    if not kinds or len(kinds) + optional != len(words):
        raise _Wrong(field, f"{path}: {hint}: expected {or_list(_TYPES)}, or one of them and None")
    if field.value is None:
        raise _Wrong(field, f"{path}: an option needs a default")
    default, doc, facts = field.value, "", dict[str, Any]()
    if isinstance(default, ast.Call):
        if _last(default.func) != "option" or not default.args:
            raise _Wrong(default, f"{path}: expected a literal default, or option(DEFAULT, ...)")
        default, *rest = [*default.args, *(one.value for one in default.keywords if one.arg == "doc")]
        doc = str(_literal(rest[0], "a meaning")) if rest else ""
        words_given = [one for one in field.value.keywords if one.arg != "doc"]  # type: ignore[attr-defined]
        for word in words_given:
            if word.arg not in _KEY_FACTS:
                raise _Wrong(
                    word.value, f"{path}: option() has no {word.arg}; choices: {or_list(_KEY_FACTS)}"
                )
            facts[str(word.arg)] = _literal(word.value, word.arg or "")
    value = _literal(default, "a default")
    if "choices" in facts:
        facts["choices"] = tuple(facts["choices"])
    known = {**key(None, "").metadata, **facts}
    found = Key(path, kinds, optional, value, doc, *(known[one] for one in _KEY_FACTS))
    try:
        return dataclasses.replace(found, default=convert(found, value))
    except ValueError as error:
        raise _Wrong(field, f"{path}: its default {value!r}: {error}") from None
