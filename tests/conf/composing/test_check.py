"""A whole configuration: all problems at once, and config.yaml reads back as what was written."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from conf import Config
from conf.between_keys.rules import RULES, Rule
from conf.composing.check import check, plain_to_yaml, to_config, to_plain, to_yaml
from conf.composing.run_identity import identity, is_in_identity
from conf.keys import groups, keys
from conf.schema import REMOVED_KEYS, field_of
from conf.schema_key import Key
from experiment_utils.errors import UserError


def values_of(key: Key) -> st.SearchStrategy[Any]:
    """Any right value of a key."""
    kinds: list[st.SearchStrategy[Any]] = []
    low, high = key.at_least, key.at_most if key.at_most is not None else key.below
    if key.choices:
        kinds.append(st.sampled_from(key.choices))
    elif key.kind == "name":
        kinds.append(st.from_regex(r"[\w][\w.+=@-]{0,20}", fullmatch=True))
    elif key.kind == "path":
        kinds.append(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda t: t[0] != "~")
        )
    elif key.kind == "time":
        kinds.append(st.sampled_from(["auto", "90", "24:00:00", "1-12", "2h", "UNLIMITED"]))
    elif key.types == (dict,):
        of_a_size = st.fixed_dictionaries({}, optional={"nodes": st.integers(1), "qos": st.text("abc=: ,")})
        kinds.append(st.dictionaries(st.from_regex(r"[1-9]\d{1,3}d", fullmatch=True), of_a_size))
    elif key.types == (list,):
        kinds.append(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
    elif key.types == (bool,):
        kinds.append(st.booleans())
    elif int in key.types:
        kinds.append(st.integers(int(low or 0), int(high) if high is not None else None))
    elif float in key.types:
        bounds = {"min_value": key.above or low or 0, "max_value": high, "exclude_min": key.above is not None}
        kinds.append(
            st.floats(**bounds, exclude_max=key.below is not None, allow_nan=False, allow_infinity=False)
        )  # type: ignore[arg-type]
    else:
        kinds.append(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: t != "???"))
    if int in key.types and str in key.types:
        kinds.append(st.just("auto"))
    if key.optional:
        kinds.append(st.none())
    return st.one_of(kinds)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for path in draw(st.lists(st.sampled_from(sorted(keys())), unique=True)):
        group, _, name = path.rpartition(".")
        section = plain.setdefault(group, {}) if group else plain
        section[name] = draw(values_of(keys()[path]))
    return plain


@given(configs())
@example({"slurm": {"by_model": {"32d": {}}}})
@example({"restore": {"from": "runs/trunk"}})
@example({"notes": "\x85"})
@example({"notes": "a\u2028b\n\xa0"})
def test_a_config_survives_its_file(plain: dict[str, Any]) -> None:
    config = to_config(plain)
    assert to_yaml(config) == plain_to_yaml(to_plain(config))
    assert to_config(yaml.safe_load(to_yaml(config))) == config
    for path in keys():
        group, _, name = path.rpartition(".")
        section = plain.get(group, {}) if group else plain
        if name in section:
            assert getattr(getattr(config, group) if group else config, field_of(name)) == section[name]


def test_what_is_not_given_has_its_default() -> None:
    assert check({}, rules=())[0] == Config()
    assert to_config({"optimizer": {"lr": 1}}).optimizer == dataclasses.replace(Config().optimizer, lr=1.0)


def test_what_a_saved_configuration_lacks_means_what_it_did_before_the_key() -> None:
    saved = to_config({"arch": {"n_experts": 4}})
    assert saved.arch.balance_over == "micro_batch"
    assert check({"arch": {"n_experts": 4}}, rules=())[0].arch.balance_over == "sequence"
    assert to_config(to_plain(Config())) == Config()


@pytest.mark.parametrize("path", REMOVED_KEYS)
def test_removed_key_is_refused_if_typed_and_ignored_if_saved(path: str) -> None:
    group, _, name = path.partition(".")
    _, problems = check({group: {name: 2}})
    assert [(problem.where, problem.what) for problem in problems] == [(path, REMOVED_KEYS[path])]
    saved = to_config({group: {name: 2}})
    assert saved == to_config({})
    assert identity(saved, "data") == identity(Config(), "data")
    assert not is_in_identity(path)


def test_to_plain_holds_every_key() -> None:
    plain = to_plain(Config())
    for path in keys():
        group, _, name = path.rpartition(".")
        assert name in (plain[group] if group else plain)


def test_all_problems_come_at_once() -> None:
    plain = {
        "model": {"d_modell": 3},
        "optimizer": {"lr": "fast"},
        "training": {"max_tokens": "1B", "max_steps": 5, "seq_len": None},
        "modle": {"d_model": 3},
        "seed": "x",
    }
    with pytest.raises(UserError) as raised:
        to_config(plain)
    assert [problem.where for problem in raised.value.problems] == [
        "model.d_modell",
        "optimizer.lr",
        "training.seq_len",
        "modle",
        "seed",
    ]
    _, problems = check(plain)
    assert [problem.where for problem in problems][-1] == "training.max_tokens"


def test_unknown_keys_suggest_the_right_one() -> None:
    _, problems = check({"training": {"lr": 1e-3}, "learning_rate": 3})
    assert [problem.where for problem in problems] == ["training.lr", "learning_rate"]
    assert all("optimizer.lr" in problem.what for problem in problems)


@pytest.mark.parametrize("value", [3, "x", [1]])
def test_a_group_is_no_value(value: Any) -> None:
    _, problems = check({"optimizer": value})
    assert [problem.where for problem in problems] == ["optimizer"]


def test_equal_groups_are_shared_and_1_is_not_true() -> None:
    one, same, other = (
        to_config({"training": {"activation_checkpointing": value, "seq_len": 32}}).training
        for value in (True, True, 1)
    )
    assert one is same
    assert (one.activation_checkpointing, other.activation_checkpointing) == (True, 1)
    assert type(other.activation_checkpointing) is int


def test_a_dotted_key_at_the_top_is_refused() -> None:
    _, problems = check({"optimizer.lr": 1})
    assert [problem.where for problem in problems] == ["optimizer.lr"]


def test_a_group_of_nothing_has_its_defaults() -> None:
    assert check({"optimizer": None}, rules=())[0] == Config()


def test_a_missing_value_is_asked_for() -> None:
    _, problems = check({"dataset": {"path": "???"}})
    assert [problem.where for problem in problems] == ["dataset.path"]
    assert "dataset.path=VALUE" in problems[0].what


def test_keys_that_are_no_text_are_told() -> None:
    _, problems = check({3: 4, "model": {5: 6}})  # type: ignore[dict-item]
    assert [problem.where for problem in problems] == ["3", "model.5"]


def test_a_rule_is_not_asked_about_a_key_that_is_wrong_already() -> None:
    asked = []
    rule = Rule(("training.seq_len", "model"), lambda config: asked.append(1) or [])  # type: ignore[func-returns-value]
    check({"training": {"seq_len": 0}}, rules=[rule])
    check({}, rules=[rule], known_bad=["model"])
    check({"model": {"d_model": 0}}, rules=[rule])
    assert asked == []
    check({"optimizer": {"lr": 0}}, rules=[rule])
    assert asked == [1]


def test_the_defaults_keep_every_rule() -> None:
    assert check({})[1] == []
    for rule in RULES:
        for read in rule.reads:
            assert read in keys() or read in groups()
