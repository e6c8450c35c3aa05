"""One `KEY=VALUE` of the command line, or one line of a study's sweep, as a `Setting`.

Hydra's own grammar decides, but for one thing: a value of a text key that it cannot parse
(`~/c4.txt`, `Datasets/été.txt`, `https://x?a=b`) is taken as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from conf.keys import groups, keys
from conf.values import describe
from experiment_utils.errors import Problem
from experiment_utils.quantities import exact_size

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override

_ARGUMENT = re.compile(r"(?P<sign>\+\+?|~)?(?P<key>[^=]*?)(?:=(?P<value>.*))?", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
_TYPED_AS_IT_IS = re.compile(r"[\w./~+-]([\w./~+@=:|<> -]*[\w./~+@=:|<>-])?")
_OTHER_THAN_TEXT = ("null", "true", "false")
_COMMA_OUTSIDE_QUOTES = re.compile(r""",\s*(?=(?:[^"']|"[^"]*"|'[^']*')*$)""")
MOST_VALUES = 100_000


@dataclass(frozen=True)
class Value:
    """A value that was given. text: as an argument that Hydra's grammar reads as the same value."""

    value: Any
    text: str


@dataclass(frozen=True)
class Setting:
    """What one argument sets.

    key: a config path, a group, or something of Hydra's own (`hydra.launcher.jobs`). values: one; of
    a sweep all of them, of an `interval(a, b)` its ends. is_delete: `~key`. argument: as Hydra reads it.
    """

    key: str
    values: tuple[Value, ...]
    argument: str
    is_sweep: bool = False
    is_interval: bool = False
    is_delete: bool = False

    @property
    def is_of_hydra(self) -> bool:
        return self.key.startswith(("hydra.", "hydra/"))


def parse(argument: str, options: Callable[[str], list[str]], *, split: bool = False) -> Setting | Problem:
    """Read one argument.

    options: the names that a group has, for `glob()`. split: a value that is taken as it stands is
    a sweep over its parts where it has commas outside of quotes.
    """
    match = _ARGUMENT.fullmatch(argument)
    assert match is not None
    sign, key, value = match["sign"] or "", match["key"].strip(), match["value"]
    inside = _inside_mapping(key)
    if inside is not None and value is not None and sign != "~":
        return _of_mapping(inside, value, options)
    if not key or (value is None and sign != "~"):
        return Problem(argument, f"expected KEY=VALUE{_example(key)}")
    try:
        parsed = _parser().parse_override(argument)
        setting = _setting(parsed, options)
        if setting.values or setting.is_delete:
            return setting
        return _empty(setting.key, str(value), options)
    except Exception as error:  # antlr, Hydra and the functions of its grammar raise many kinds
        known = keys().get(key)
        if value is None or (known is not None and not (known.is_text or known.types == (list,))):
            expected = f"expected {describe(known)}, " if known else ""
            return Problem(key, f"{expected}cannot read `{value}`{_reason(error)}")
        return _taken_literally(key, value, split)


def _empty(key: str, text: str, options: Callable[[str], list[str]]) -> Problem:
    """The problem of a pattern or list without a value."""
    if text.strip().startswith("glob("):
        choices = " ".join(options(key))
        what = f"choices: {choices}" if choices else f"{key} is no group: give its values, {key}=A,B"
        return Problem(key, f"`{text}` matches nothing; {what}")
    return Problem(key, f"`{text}` has no value: expected at least one")


def _inside_mapping(key: str) -> tuple[str, str] | None:
    """Of `slurm.by_model.256d.mem` the key that is a mapping and the path in it; None of other keys."""
    found = next(
        (path for path, known in keys().items() if known.types == (dict,) and key.startswith(f"{path}.")),
        None,
    )
    return (found, key.removeprefix(f"{found}.")) if found else None


def _of_mapping(inside: tuple[str, str], text: str, options: Callable[[str], list[str]]) -> Setting | Problem:
    """`MAPPING.SIZE.KEY=VALUE` as a mapping: Hydra's grammar refuses it for a size such as 256d."""
    mapping, path = inside
    size, _, name = path.rpartition(".")

    def whole(inner: str) -> str:
        return f"{mapping}={{{size or name}:{f'{{{name}:{inner}}}' if size else inner}}}"

    parsed = parse(whole(text), options)
    if isinstance(parsed, Problem) or parsed.is_sweep:
        literal = _taken_literally(f"{mapping.rpartition('.')[0]}.{name}", text, split=False)
        parsed = parse(whole(literal.values[0].text), options)
    return parsed if isinstance(parsed, Setting) else Problem(f"{mapping}.{path}", parsed.what)


def _example(key: str) -> str:
    if key in groups():
        return f"; the choices: --help {key}"
    known = keys().get(key)
    if known is None:
        return ""
    return f", for example {key}=true" if known.types == (bool,) else f": {describe(known)}"


def _reason(error: Exception) -> str:
    """What a function of the grammar says; the parser's own words help nobody."""
    _, evaluating, reason = str(error).partition("while evaluating ")
    return f": {reason.splitlines()[0]}" if evaluating else ""


def _taken_literally(key: str, text: str, split: bool) -> Setting:
    known = keys().get(key)
    if known is not None and known.types == (list,):
        items = [
            _literal(part)
            for part in _COMMA_OUTSIDE_QUOTES.split(text.strip().removeprefix("[").removesuffix("]"))
        ]
        value = Value([item.value for item in items], f"[{','.join(item.text for item in items)}]")
        return Setting(key, (value,), f"{key}={value.text}")
    values = tuple(_literal(part) for part in (_COMMA_OUTSIDE_QUOTES.split(text) if split else [text]))
    texts = ",".join(value.text for value in values)
    return Setting(key, values, f"{key}={texts}", is_sweep=len(values) > 1)


def _setting(parsed: Override, options: Callable[[str], list[str]]) -> Setting:
    from hydra.core.override_parser.types import Glob, IntervalSweep, Transformer

    key = parsed.key_or_group + (f"@{parsed.package}" if parsed.package is not None else "")
    raw: Any = parsed._value
    if parsed.is_delete():
        return Setting(key, (), str(parsed.input_line), is_delete=True)
    if isinstance(raw, IntervalSweep):
        ends = tuple(Value(end, repr(end)) for end in (raw.start, raw.end))
        argument = f"{key}={parsed.get_value_string()}"
        return Setting(key, ends, argument, is_sweep=True, is_interval=True)
    if not parsed.is_sweep_override():
        value = _value(key, raw, Transformer.str(raw), parsed.get_value_string())
        return Setting(key, (value,), argument_of(key, value.text))
    elements = raw.filter(options(key)) if isinstance(raw, Glob) else parsed.sweep_iterator()
    values = tuple(
        _value(key, item, Transformer.str(item), None) for item in islice(elements, MOST_VALUES + 1)
    )
    return Setting(key, values, f"{key}={parsed.get_value_string()}", is_sweep=True)


def _value(key: str, raw: Any, text: str, typed: str | None) -> Value:
    """typed: the value as it stands in the argument, where it is one; 1e-3 for a text key is `1e-3`."""
    from hydra.core.override_parser.types import Override

    known = keys().get(key)
    is_number = isinstance(raw, int | float)
    if known is not None and known.is_text and is_number:
        return _literal(typed.strip() if typed is not None else text)
    value = Override._convert_value(raw)
    if known is not None and known.types == (dict,):
        return Value(value, as_typed(value))
    if isinstance(raw, str) and not _PLAIN.fullmatch(raw):
        return Value(value, quoted(raw))
    if is_number and typed is not None and not isinstance(raw, bool):
        return Value(value, typed.strip())
    return Value(value, text)


def _literal(text: str) -> Value:
    """The text itself, protected from Hydra's grammar and from interpolation."""
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        stripped = stripped[1:-1]
    escaped = stripped.replace("${", r"\${")
    return Value(escaped, quoted(escaped))


def argument_of(key: str, text: str) -> str:
    """As Hydra takes it: what a mapping holds is new to it."""
    known = keys().get(key)
    return f"{'++' if known is not None and known.types == (dict,) else ''}{key}={text}"


def as_typed(value: Any, *, in_mapping: bool = False) -> str:
    """A value of a key as `parse` reads it back, before it is quoted for the shell.

    in_mapping: where nothing is taken as it stands, so that Hydra's grammar must read it.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{','.join(as_typed(item, in_mapping=in_mapping) for item in value)}]"
    if isinstance(value, dict):
        inner = (f"{name}:{as_typed(item, in_mapping=True)}" for name, item in value.items())
        return f"{{{','.join(inner)}}}"
    text = str(value)
    bare = _PLAIN if in_mapping else _TYPED_AS_IT_IS
    if isinstance(value, str) and (not bare.fullmatch(text) or text.lower() in _OTHER_THAN_TEXT):
        return quoted(text.replace("${", r"\${"))
    return text


def typed_at(path: str, value: Any) -> str:
    """The same of the key at this config path: a size with its unit."""
    key = keys().get(path)
    if key is not None and key.kind == "size" and isinstance(value, int) and not isinstance(value, bool):
        return exact_size(value)
    return as_typed(value)


def quoted(text: str) -> str:
    """The text as Hydra's grammar reads it as text, whatever is in it."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


@cache
def _parser() -> OverridesParser:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()
