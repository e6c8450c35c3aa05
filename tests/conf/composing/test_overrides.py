"""One argument of the command line, in Hydra's grammar or as it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.composing.interpolation import resolve
from conf.composing.overrides import Setting, as_typed, parse, typed_at
from experiment_utils.errors import Problem
from tests.golden_text import Golden


def options(group: str) -> list[str]:
    return ["32d", "64d", "128d"]


def setting(argument: str, *, split: bool = False) -> Setting:
    parsed = parse(argument, options, split=split)
    assert isinstance(parsed, Setting), parsed
    return parsed


def values(argument: str, *, split: bool = False) -> list[object]:
    return [value.value for value in setting(argument, split=split).values]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("optimizer.lr=1e-3", 1e-3),
        ("+optimizer.lr=1e-3", 1e-3),
        ("++optimizer.lr=1e-3", 1e-3),
        ("model=32d", "32d"),
        ("training.max_tokens=1B", "1B"),
        ("training.max_steps=null", None),
        ("arch.tied_head=False", False),
        ("tags=[a,b c]", ["a", "b c"]),
        ("notes=", ""),
        ("notes=two words", "two words"),
        ("notes='a, b'", "a, b"),
        ("dataset.path=Datasets/my.txt", "Datasets/my.txt"),
        ("optimizer.lr=${schedule.warmup_fraction}", "${schedule.warmup_fraction}"),
    ],
)
def test_hydras_grammar(argument: str, value: object) -> None:
    assert values(argument) == [value]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("dataset.path=~/c4.txt", "~/c4.txt"),
        ("dataset.path=Datasets/été.txt", "Datasets/été.txt"),
        ("dataset.path=a (1).txt", "a (1).txt"),
        ("dataset.path=it's.txt", "it's.txt"),
        ("notes=https://x/y?a=b&c=d", "https://x/y?a=b&c=d"),
        ("notes=2^10", "2^10"),
        ("notes='half quoted", "'half quoted"),
        ("notes=foo(3)", "foo(3)"),
        ("tags=[été,(b)]", ["été", "(b)"]),
    ],
)
def test_text_that_it_cannot_read_is_taken_as_it_stands(argument: str, value: object) -> None:
    assert values(argument) == [value]


@pytest.mark.parametrize("number", ["1e-3", "007.50", "1_000", "0x10", "true", "12"])
def test_a_number_for_a_text_key_stays_as_it_was_typed(number: str) -> None:
    assert values(f"notes={number}") == [number]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_what_a_text_became_is_read_again_as_the_same(text: str) -> None:
    """`argument` and every value's text go through Hydra, and must mean there what they mean here."""
    for split in (False, True):
        parsed = parse(f"notes={text}", options, split=split)
        if isinstance(parsed, Problem) or not parsed.values:
            continue
        assert [v.value for v in setting(parsed.argument).values] == [v.value for v in parsed.values]
        for value in parsed.values:
            again = setting(f"notes={value.text}")
            assert [v.value for v in again.values] == [value.value]
            assert not again.is_sweep


@pytest.mark.parametrize(
    ("argument", "swept"),
    [
        ("optimizer.lr=1e-3,3e-3", [1e-3, 3e-3]),
        ("seed=range(3)", [0, 1, 2]),
        ("seed=range(1,8,3)", [1, 4, 7]),
        ("seed=choice(5,7)", [5, 7]),
        ("model=glob(*)", ["32d", "64d", "128d"]),
        ("model=glob(*,exclude=64*)", ["32d", "128d"]),
        ("notes=a,b", ["a", "b"]),
        ("tags=[a],[b]", [["a"], ["b"]]),
    ],
)
def test_sweeps(argument: str, swept: list[object]) -> None:
    parsed = setting(argument)
    assert parsed.is_sweep
    assert [value.value for value in parsed.values] == swept


def test_text_is_split_at_commas_only_where_asked() -> None:
    assert values("dataset.path=~/a.txt,~/b.txt") == ["~/a.txt,~/b.txt"]
    assert values("dataset.path=~/a.txt,~/b.txt", split=True) == ["~/a.txt", "~/b.txt"]
    assert values("dataset.path='~/a,b.txt',été.txt", split=True) == ["~/a,b.txt", "été.txt"]


def test_an_interval_has_two_ends() -> None:
    parsed = setting("optimizer.lr=interval(1e-4,1e-2)")
    assert parsed.is_interval
    assert [value.value for value in parsed.values] == [1e-4, 1e-2]


def test_a_huge_range_is_not_written_out() -> None:
    assert len(setting("seed=range(0,1000000000)").values) == 100_001


def test_deletion() -> None:
    assert setting("~optimizer.lr").is_delete


def test_argument_that_sets_nothing_is_a_problem(golden: Golden) -> None:
    texts = []
    for argument in ("plan", "model", "seed", "=3", "", "training.max_tokens=(10M", "optimizer.lr=foo(3)"):
        parsed = parse(argument, options)
        assert isinstance(parsed, Problem)
        assert parsed.where == (argument if argument == "=3" else argument.partition("=")[0])
        texts.append(str(parsed))
    golden.text("\n".join(texts))


@given(
    st.one_of(
        st.text(max_size=20), st.sampled_from(["null", "True", "1e-3", "a,b", "${seed}", "'", "\\", ""])
    )
)
def test_a_text_reads_back_as_it_is_typed(text: str) -> None:
    found = parse(f"notes={as_typed(text)}", lambda group: [])
    assert isinstance(found, Setting)
    (value,) = found.values
    resolved, problems = resolve({"notes": value.value})
    assert (resolved["notes"], problems) == (text, [])


@pytest.mark.parametrize("value", [None, True, False, 3, 0.003, 1e-8, 0.1 + 0.2, 2**63 - 1])
def test_a_value_reads_back_as_it_is_typed(value: object) -> None:
    found = parse(f"training.tokens_per_param={as_typed(value)}", lambda group: [])
    assert isinstance(found, Setting)
    assert found.values[0].value == value
    assert as_typed([1, "a"]) == "[1,a]"


def test_a_size_is_typed_with_its_unit() -> None:
    assert typed_at("slurm.mem", 700 << 20) == "700MB"
    assert typed_at("slurm.mem", "auto") == "auto"
    assert typed_at("training.max_steps", 1 << 20) == "1048576"
