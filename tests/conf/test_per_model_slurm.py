"""`slurm.by_model`: a mapping in the configuration, merged, checked key by key, and put in its place."""

from __future__ import annotations

from typing import Any

import pytest

from conf import Config
from conf.command_line.request import read_request, read_run
from conf.composing.check import to_config, to_plain, to_yaml
from conf.composing.compose import Composer
from conf.per_model_slurm import merged, settle, without
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import format_limit, parse_duration
from tests.golden_text import Golden

GB = 1 << 30


@pytest.fixture(scope="module")
def composer(tmp_path_factory: pytest.TempPathFactory) -> Composer:
    """With a site of the user's own."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "slurm").mkdir()
    (folder / "slurm" / "site.yaml").write_text(
        "partition: gpu\ntime: 24:00:00\nby_model:\n  256d: {mem: 64GB, time: 48:00:00, gpus_per_node: 2}\n"
        "  512d:\n    mem: 128GB\n    time: 90\n"
    )
    (folder / "model").mkdir()
    (folder / "model" / "mine.yaml").write_text("d_model: 48\n")
    return Composer(folder)


def run_of(composer: Composer, *overrides: str) -> Config:
    return read_run(overrides, composer)


def problems_of(composer: Composer, *overrides: str) -> list[Problem]:
    with pytest.raises(UserError) as error:
        read_request(list(overrides), composer, multirun=False)
    return error.value.problems


@pytest.mark.parametrize(
    "typed",
    [
        ["slurm.by_model={256d: {mem: 64GB, time: 12:00:00}}"],
        ["slurm.by_model.256d.mem=64GB", "slurm.by_model.256d.time=12:00:00"],
        ["slurm.by_model.256d={mem: 64GB}", "++slurm.by_model.256d.time='12:00:00'"],
        ["slurm.by_model={256d: {time: 12:00:00}}", "slurm.by_model.256d.mem=64GB"],
    ],
)
def test_every_way_to_type_it(composer: Composer, typed: list[str]) -> None:
    request = read_request(["model=256d", *typed], composer, multirun=False)
    (run,) = request.runs
    assert run.config.slurm.by_model == {"256d": {"mem": 64 * GB, "time": "12:00:00"}}
    assert read_run(run.overrides, composer) == run.config  # as a launcher hands them on


@pytest.mark.parametrize(
    ("typed", "inner"),
    [
        ("slurm.by_model.256d.mem=64GB", {"mem": "64GB"}),
        ("slurm.by_model.256d.options=[--nodelist=n1]", {"options": ["--nodelist=n1"]}),
        ("slurm.by_model={256d: {setup: ['export A=b', 'x 1'], qos: 'a<b'}}",
         {"setup": ["export A=b", "x 1"], "qos": "a<b"}),
    ],
)  # fmt: skip
def test_hydra_itself_composes_what_is_handed_on(
    typed: str, inner: dict[str, Any], composer: Composer
) -> None:
    request = read_request(["model=256d", typed], composer, multirun=False)
    composed, problems = composer.hydra_part({}, request.arguments[-1:])
    assert problems == []
    assert composed.slurm.by_model == {"256d": inner}


def test_values_that_hydra_s_grammar_refuses_are_taken_as_they_stand(composer: Composer) -> None:
    config = run_of(composer, "slurm.by_model.256d.constraint=a100&80g~", "slurm.by_model.256d.partition=a,b")
    assert config.slurm.by_model == {"256d": {"constraint": "a100&80g~", "partition": "a,b"}}


def test_what_is_typed_is_merged_into_what_the_site_has(composer: Composer) -> None:
    config = run_of(composer, "slurm=site", "model=256d", "slurm.by_model.256d.mem=80GB")
    assert config.slurm.by_model == {
        "256d": {"mem": 80 * GB, "time": "48:00:00", "gpus_per_node": 2},
        "512d": {"mem": 128 * GB, "time": "90"},
    }
    other = run_of(composer, "slurm=site", "model=256d")
    assert other.slurm.by_model["256d"]["mem"] == 64 * GB  # the file was not changed


def test_what_is_typed_for_all_runs_goes_before_the_site_s_word_for_one_size(composer: Composer) -> None:
    settled = settle(run_of(composer, "slurm=site", "model=256d", "slurm.mem=8GB"))
    assert (settled.slurm.mem, settled.slurm.time, settled.slurm.gpus_per_node) == (8 * GB, "48:00:00", 2)
    both = settle(
        run_of(composer, "slurm=site", "model=256d", "slurm.mem=8GB", "slurm.by_model.256d.mem=9GB")
    )
    assert both.slurm.mem == 9 * GB


def test_settled_is_the_size_s_own_and_stays(composer: Composer) -> None:
    settled = settle(run_of(composer, "slurm=site", "model=512d"))
    assert (settled.slurm.mem, settled.slurm.time, settled.slurm.partition) == (128 * GB, "90", "gpu")
    assert settled.slurm.by_model == {}
    assert settle(settled) == settled
    assert settle(run_of(composer, "slurm=site", "model=32d")).slurm.time == "24:00:00"
    deep = run_of(composer, "model=64d", "model.n_layers=2", "slurm.by_model={64d-2layers:{mem: 1G}}")
    assert settle(deep).slurm.mem == GB


def test_it_is_read_back_as_it_was_written(composer: Composer) -> None:
    import yaml

    config = run_of(composer, "slurm=site", "slurm.by_model.32d.options=[--exclusive,--nodelist=n1]")
    assert to_config(yaml.safe_load(to_yaml(config))) == config
    assert to_plain(config)["slurm"]["by_model"]["32d"] == {"options": ["--exclusive", "--nodelist=n1"]}


def test_every_wrong_key_has_the_nearest_name(composer: Composer, golden: Golden) -> None:
    found = problems_of(
        composer,
        "slurm.by_model={256d: {mem: much, tim: 3, workers: 2}, 512d: 7}",
        "slurm.by_model.25d.mem=1G",
    )
    assert {problem.where.removeprefix("slurm.by_model.") for problem in found} == {
        "256d.mem", "256d.tim", "256d.workers", "512d", "25d",
    }  # fmt: skip
    golden.text("\n".join(map(str, found)))


def test_a_size_of_the_user_s_own_is_known(composer: Composer) -> None:
    request = read_request(["slurm.by_model.mine.mem=1G"], composer, multirun=False)
    assert request.runs[0].config.slurm.by_model == {"mine": {"mem": GB}}


@pytest.mark.parametrize("typed", ["slurm.by_model=3", "slurm.by_model=[a]", "slurm.by_model.256d=mem"])
def test_what_is_no_mapping(composer: Composer, typed: str) -> None:
    assert problems_of(composer, typed)[0].where.startswith("slurm.by_model")


def test_it_cannot_be_swept(composer: Composer) -> None:
    with pytest.raises(UserError) as error:
        read_request(["slurm.by_model={256d:{mem:1G}},{256d:{mem:2G}}"], composer, multirun=True)
    assert [problem.where for problem in error.value.problems] == ["slurm.by_model"]


def test_tables_of_runs_whose_mappings_differ(composer: Composer) -> None:
    from conf.composing.run_identity import varying_settings

    configs = [run_of(composer, "slurm=site"), run_of(composer)]
    assert varying_settings(configs) == {}


def test_merging_changes_nothing_that_is_given() -> None:
    before: dict[str, Any] = {"a": {"x": 1, "y": 2}}
    assert merged(before, {"a": {"x": 3}, 256: {"z": 4}}) == {"a": {"x": 3, "y": 2}, "256": {"z": 4}}
    assert without(before, ["x"]) == {"a": {"y": 2}}
    assert before == {"a": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "seconds", "limit"),
    [
        ("90", 5400, "1:30:00"), (90, 5400, "1:30:00"), ("24:00:00", 86400, "1-00:00:00"),
        ("1-12", 129600, "1-12:00:00"), ("1-12:30", 131400, "1-12:30:00"), ("1-0:30:15", 88215, "1-00:31:00"),
        ("1:30", 90, "0:02:00"), ("2h", 7200, "2:00:00"), ("90min", 5400, "1:30:00"),
        ("1d 6h", 108000, "1-06:00:00"), ("1.5h", 5400, "1:30:00"), ("45s", 45, "0:01:00"),
    ],
)  # fmt: skip
def test_time_limits(text: str | int, seconds: float, limit: str) -> None:
    assert parse_duration(text) == seconds
    assert format_limit(seconds) == limit
    assert parse_duration(format_limit(seconds)) >= seconds  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "0", "abc", "1-", "1:2:3:4", "2 weeks", "-5", "1h30"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_duration(text)


def test_a_time_of_a_file_is_what_is_written_there(composer: Composer, golden: Golden) -> None:
    assert run_of(composer, "slurm=site").slurm.time == "24:00:00"  # 86400 to yaml
    assert run_of(composer, "slurm.time=1-12").slurm.time == "1-12"
    (problem,) = problems_of(composer, "slurm.time=soon")
    assert problem.where == "slurm.time"
    golden.text(str(problem))
