"""Registrations and options are read from the source of a plugin, which is not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.own_parts.read_source import read_parts
from experiment_utils.errors import UserError
from tests.own_plugins import HEAD, write_plugin

FORMS = {
    "decorator": '@register.model("one", options=Options)\nclass One: ...',
    "call": 'class One: ...\nregister.model("one", options=Options)(One)',
}
OPTIONS = """
@dataclass
class Options:
    width: int = option(3, "a width", at_least=1)
    share: float | None = None
    names: list[str] = option([])
    flag: bool = False
    kind: str = option("a", choices=("a", "b"))
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "head",
    [HEAD, "from dataclasses import dataclass\nimport highwater\nfrom highwater import option\n"],
)
def test_options_have_types_defaults_and_bounds(tmp_path: Path, form: str, head: str) -> None:
    source = FORMS[form] if head is HEAD else FORMS[form].replace("register.", "highwater.register.")
    path = write_plugin(tmp_path, OPTIONS, source, "1 / 0", head=head)
    (part,) = read_parts("it", [path])
    assert (part.kind, part.name, part.plugin, part.file) == ("model", "one", "it", path)
    assert part.line == next(
        i for i, line in enumerate(path.read_text().splitlines(), 1) if "register.model" in line
    )
    options = {key.name: key for key in part.options}
    assert {name: key.default for name, key in options.items()} == {
        "width": 3, "share": None, "names": [], "flag": False, "kind": "a",
    }  # fmt: skip
    assert options["width"].types == (int,)
    assert options["width"].at_least == 1
    assert options["width"].doc == "a width"
    assert options["share"].optional
    assert options["kind"].choices == ("a", "b")
    assert options["width"].path == "own.one.width"


X = '\n@register.model("x", options=O)\nclass X: ...'
WRONG = {
    "no such kind": '@register.modle("x")\nclass X: ...',
    "a name that is computed": 'NAME = "x"\n@register.model(NAME)\nclass X: ...',
    "no name": "@register.model()\nclass X: ...",
    "a name with a space": '@register.model("a b")\nclass X: ...',
    "options of another file": X,
    "no dataclass": f"class O:\n    a: int = 1{X}",
    "a type that is none": f"@dataclass\nclass O:\n    a: dict = 1{X}",
    "a default that is computed": f"@dataclass\nclass O:\n    a: int = 1 + N{X}",
    "no default": f"@dataclass\nclass O:\n    a: int{X}",
    "a default of another type": f"@dataclass\nclass O:\n    a: int = 'b'{X}",
    "a default out of bounds": f"@dataclass\nclass O:\n    a: int = option(0, at_least=1){X}",
    "a word that option lacks": f"@dataclass\nclass O:\n    a: int = option(1, minimum=1){X}",
    "a key of arch that takes none": '@register.arch_option("norm_eps", "x")\ndef x(a): ...',
}


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, source: str) -> None:
    path = write_plugin(tmp_path, source)
    with pytest.raises(UserError) as refused:
        read_parts("it", [path])
    (problem,) = refused.value.problems
    assert problem.code == "plugin-registration"
    file, _, line = problem.where.rpartition(":")
    assert file == str(path)
    assert 4 < int(line) <= len(path.read_text().splitlines())


def test_syntax_error_names_its_line(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "def f(:\n")
    with pytest.raises(UserError) as refused:
        read_parts("it", [path])
    assert refused.value.codes == ["plugin-syntax"]
    assert refused.value.problems[0].where == f"{path}:5"
