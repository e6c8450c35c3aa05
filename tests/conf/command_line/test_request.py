"""What a command line asks for: every run of it, or every mistake in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from composed_once import kept_composer
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from conf import Config
from conf.between_keys.rules import Rule
from conf.command_line.request import Request, read_request, read_run
from conf.composing.compose import Composer
from experiment_utils.errors import Problem, UserError
from tests.golden_text import Golden


@pytest.fixture(scope="module")
def composer() -> Composer:
    return kept_composer()


def request_of(composer: Composer, *arguments: str, multirun: bool = False) -> Request:
    return read_request(list(arguments), composer, multirun=multirun, command="this command")


def mistakes(composer: Composer, *arguments: str, multirun: bool = False) -> list[Problem]:
    with pytest.raises(UserError) as raised:
        request_of(composer, *arguments, multirun=multirun)
    return raised.value.problems


def as_text(problems: list[Problem]) -> str:
    return "\n".join(map(str, problems))


def test_one_run(composer: Composer) -> None:
    request = request_of(composer, "model=64d", "optimizer.lr=1e-3", "dataset.path=~/x.txt")
    (run,) = request.runs
    assert (run.config.model.name, run.config.model.d_model, run.config.optimizer.lr) == ("64d", 64, 1e-3)
    assert run.config.dataset.path == str(Path.home() / "x.txt")
    assert run.overrides == ("model=64d", "optimizer.lr=1e-3", "dataset.path='~/x.txt'")
    assert not request.multirun


def test_runs_go_where_all_commands_look_for_them(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HIGHWATER_RUNS_DIR, where no runs_dir is typed."""
    for there in ("/scratch/me", "/scratch/it's, mine"):
        monkeypatch.setenv("HIGHWATER_RUNS_DIR", there)
        assert request_of(composer).runs[0].config.runs_dir == there
        swept = request_of(composer, "seed=0,1", multirun=True).runs
        assert [run.config.runs_dir for run in swept] == [there] * 2
        assert read_run(["seed=1"], composer).runs_dir == there
        for typed in ("runs_dir=here", "++runs_dir=here"):
            assert request_of(composer, typed).runs[0].config.runs_dir == "here"
    monkeypatch.setenv("HIGHWATER_RUNS_DIR", "")
    assert request_of(composer).runs[0].config.runs_dir == "runs"


def test_no_arguments_are_the_defaults(composer: Composer) -> None:
    (run,) = request_of(composer).runs
    expected = Config()
    expected.dataset.source = "stdlib"
    assert run.config == expected


def test_a_sweep_is_every_combination_in_hydras_order(composer: Composer) -> None:
    arguments = [
        "model=32d,64d",
        "seed=range(3)",
        "optimizer.lr=1e-3,3e-3",
        "schedule=glob(c*)",
        "notes='a, b'",
    ]
    request = request_of(composer, *arguments, multirun=True)
    overrides = OverridesParser.create(composer._loader).parse_overrides(arguments)
    (batch,) = BasicSweeper.split_arguments(overrides, None)
    assert [read_run(given, composer) for given in batch] == [run.config for run in request.runs]
    assert len(batch) == 2 * 3 * 2 * 3
    for run in request.runs:
        assert read_run(run.overrides, composer) == run.config


def test_a_study_sweeps_and_the_command_line_wins(composer: Composer) -> None:
    request = request_of(composer, "study=lr_sweep", "optimizer.lr=1e-3", multirun=True)
    assert [(run.config.model.name, run.config.optimizer.lr) for run in request.runs] == [
        ("32d", 1e-3),
        ("64d", 1e-3),
    ]
    assert {run.config.study.name for run in request.runs} == {"lr_sweep"}
    assert {run.config.training.max_tokens for run in request.runs} == {500_000}


def test_a_study_of_which_one_run_is_left_needs_no_multirun(composer: Composer) -> None:
    (run,) = request_of(composer, "study=lr_sweep", "optimizer.lr=1e-3", "model=96d").runs
    assert (run.config.model.name, run.config.study.name) == ("96d", "lr_sweep")


def test_a_study_that_sweeps_needs_multirun(composer: Composer, golden: Golden) -> None:
    (problem,) = mistakes(composer, "study=lr_sweep", "notes=a b")
    assert problem.where == "study"
    golden.text(str(problem))


def test_a_sweep_needs_multirun(composer: Composer, golden: Golden) -> None:
    sizes, notes = mistakes(composer, "model=32d,64d", "notes=a,b")
    assert (sizes.where, notes.where) == ("model", "notes")
    assert "'notes=\"a,b\"'" in notes.what
    golden.text(as_text([sizes, notes]))
    assert request_of(composer, 'notes="a,b"').runs[0].config.notes == "a,b"


@pytest.mark.parametrize(("second", "lost"), [("seed=3", "3"), ("seed=4,5", "4,5")])
def test_a_sweep_that_the_same_key_would_replace_is_refused(
    composer: Composer, second: str, lost: str
) -> None:
    """Hydra's own sweeper drops the first of the two and says nothing."""
    (found,) = mistakes(composer, "seed=0,1", second, multirun=True)
    assert (found.where, "0,1" in found.what, lost in found.what) == ("seed", True, True)
    assert len(request_of(composer, "seed=3", "seed=0,1", multirun=True).runs) == 2
    assert len(request_of(composer, "seed=3", "seed=4").runs) == 1


def test_multirun_may_come_as_hydras_mode(composer: Composer) -> None:
    assert len(request_of(composer, "model=32d,64d", "hydra.mode=MULTIRUN").runs) == 2


def test_study_name_follows_the_study(composer: Composer) -> None:
    assert request_of(composer).runs[0].config.study.name is None
    named = request_of(composer, "study=seeds", "study.name=mine", multirun=True)
    assert {run.config.study.name for run in named.runs} == {"mine"}


# Each has one mistake.
MISTAKES = [
    "model=257d", "model=256", "model=", "model=null", "schedule=cosin", "dataset=hf://a/b",
    "dataset=mine.txt", "optimizer={lr: 3}", "+training.lrr=1", "++training.lrr=1", "training.lr=1",
    "modle=32d", "model@x=32d", "hydra=3", "~optimizer.grad_clip", "~optimizer.lr", "~dataset.repeat",
    "~model", "~study", "~training.lrr", "optimizer.lr=${foo.bar}", "notes=${hydra:job.name}",
    "hydra/launcher=lcal", "hydra/sweeper=nevergrad", "hydra/lancher=local", "hydra.launcher=null",
    "hydra.launcher=foo", "~hydra/launcher", "hydra.sweeper=null", "hydra.sweeper.params=3",
    "hydra.launcher.jobs=0", "hydra.launcher.jobs=two", "hydra.launcher.jbos=2", "hydra.nothing.at=2",
    "hydra.job.chdir=maybe", "hydra.launcher.jobs=1,2", "hydra.run.dir=out", "hydra.sweep.subdir=x",
    "hydra.job.chdir=true", "hydra/job_logging=default", "optimizer=glob(adan*)",
    "training.seq_len=glob(*)", "seed=range(5,5)", "study=glob(nope*)", "seed=range(0,1000000)",
    "optimizer.lr=interval(1e-4,1e-2)", "study=seeds,scaling", "plan",
]  # fmt: skip


def test_each_mistake_is_one_problem_at_its_key(composer: Composer, golden: Golden) -> None:
    texts = []
    for typed in [*MISTAKES, "model=32d model=64d"]:
        arguments = typed.split() if " model" in typed else [typed]
        (problem,) = mistakes(composer, *arguments, multirun=True)
        key = typed.lstrip("+~").partition("=")[0]
        assert problem.where.replace("/", ".") in {key.replace("/", "."), ""}, typed
        texts.append(f"{typed}\n  {problem}")
    golden.text("\n".join(texts))


def test_a_key_of_hydra_at_the_value_that_holds_is_taken(composer: Composer) -> None:
    assert len(request_of(composer, "hydra.job.chdir=false", "hydra.output_subdir=null").runs) == 1


def test_a_file_that_sets_a_key_of_hydra_without_effect_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    file = tmp_path / "study" / "mine.yaml"
    file.write_text(
        "# @package _global_\nhydra:\n  run:\n    dir: out\n  sweeper:\n    params:\n      seed: 1,2\n"
    )
    (problem,) = mistakes(Composer(tmp_path), "study=mine", multirun=True)
    assert problem.where == "hydra.run.dir"
    assert str(file) in problem.what


def test_all_mistakes_at_once_and_each_once(composer: Composer) -> None:
    told = mistakes(
        composer,
        "model=257d",
        "training.lrr=1",
        "optimizer.lr=-1",
        "training.micro_batch=5",
        "tokenizer=gpt3",
        "hydra/launcher=lcal",
        "~seed",
        "plan",
        "training.max_steps=1.5",
        multirun=True,
    )
    assert [problem.where for problem in told] == [
        "model",
        "training.lrr",
        "tokenizer",
        "hydra/launcher",
        "seed",
        "plan",
        "optimizer.lr",
        "training.max_steps",
        "training.micro_batch",
    ]


def test_a_sweep_says_which_of_its_runs_are_wrong(composer: Composer, golden: Golden) -> None:
    lr, micro = mistakes(
        composer, "model=32d,64d", "training.micro_batch=4,5", "seed=0,1", "optimizer.lr=-1", multirun=True
    )
    assert (lr.where, micro.where) == ("optimizer.lr", "training.micro_batch")
    assert "training.micro_batch=5" in micro.what
    (one_value,) = mistakes(composer, "optimizer.lr=1e-3,0,3e-3", "seed=0,1", multirun=True)
    assert "optimizer.lr=0" in one_value.what
    golden.text(as_text([lr, micro, one_value]))


def test_a_mistake_in_a_file_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "model/mine.yaml": "d_modell: 40\n",
        "optimizer/mine.yaml": "name: adamw\nlr: fast\n",
        "study/mine.yaml": "# @package _global_\nmodle: {d_model: 3}\nhydra:\n  sweeper:\n    params:\n"
        "      seed: 0,-1\n      optimizer.lrr: 1,2\n",
    }.items():
        (tmp_path / "mine" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "mine" / name).write_text(text)
    composer = Composer(Path("mine"))
    told = mistakes(composer, "model=mine", "optimizer=mine", "study=mine", multirun=True)
    assert [(problem.where, *re.findall(r"mine/\w+/mine.yaml", problem.what)) for problem in told] == [
        ("optimizer.lrr",),
        ("model.d_modell", "mine/model/mine.yaml"),
        ("optimizer.lr", "mine/optimizer/mine.yaml"),
        ("modle", "mine/study/mine.yaml"),
        ("seed",),
    ]
    golden.text(as_text(told))


def test_a_group_file_of_ones_own_is_named_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("d_model: 100\nn_heads: 10\n")
    (run,) = read_request(["model=wide"], Composer(tmp_path), multirun=False).runs
    assert (run.config.model.name, run.config.model.d_model) == ("wide", 100)


def test_any_file_name_will_do_for_an_option(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "très (large).yaml").write_text("d_model: 100\nname: wide\n")
    composer = Composer(tmp_path)
    for multirun in (False, True):
        (run,) = read_request(["model=très (large)"], composer, multirun=multirun).runs
        assert run.config.model.d_model == 100
    assert read_run(run.overrides, composer) == run.config


@pytest.mark.parametrize("option", ["../arch/transformer", "32d.yaml", "./32d", "32d/", "/32d"])
def test_an_option_is_a_name_and_no_path(composer: Composer, option: str) -> None:
    (problem,) = mistakes(composer, f"model={option}")
    assert (problem.where, f"`{option}`" in problem.what) == ("model", True)


def test_a_folder_may_be_given_as_hydras_searchpath(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("d_model: 100\n")
    searchpath = f"hydra.searchpath=[file://{tmp_path}]"
    composer = Composer(searchpath=[searchpath])
    (run,) = read_request([searchpath, "model=wide"], composer, multirun=False).runs
    assert run.config.model.d_model == 100


def test_interpolations(composer: Composer) -> None:
    (run,) = request_of(
        composer, "optimizer.lr=${schedule.final_lr_fraction}", "notes=${model.name}-${seed}"
    ).runs
    assert (run.config.optimizer.lr, run.config.notes) == (0.1, "32d-0")
    (run,) = request_of(composer, "optimizer.grad_clip=${training.max_steps}").runs
    assert run.config.optimizer.grad_clip is None
    notes = "costs ${5 (or so)"
    (run,) = request_of(composer, f"notes={notes}").runs
    assert run.config.notes == notes


def test_rules_of_other_rooms_are_asked(composer: Composer) -> None:
    rule = Rule(("model",), lambda config: [Problem("model.d_model", f"no {config.model.name}")])
    with pytest.raises(UserError, match="no 64d"):
        read_request(["model=32d,64d"], composer, multirun=True, rules=[rule])
    with pytest.raises(UserError) as raised:
        read_request(["model=257d"], composer, multirun=False, rules=[rule])
    assert len(raised.value.problems) == 1


def test_hydra_gets_what_it_can_read(composer: Composer) -> None:
    request = request_of(
        composer, "dataset.path=~/é.txt", "+seed=1,2", "hydra.launcher.jobs=2", "model=64d", multirun=True
    )
    assert request.arguments == ["hydra.launcher.jobs=2", "dataset.path='~/é.txt'", "seed=1,2", "model=64d"]
    OverridesParser.create().parse_overrides(request.arguments)


def test_read_run_takes_no_part_in_sweeps(composer: Composer) -> None:
    assert read_run(["study=lr_sweep", "optimizer.lr=0.5"], composer).optimizer.lr == 0.5
    with pytest.raises(UserError) as raised:
        read_run(["model=1d2", "seed=x"], composer)
    assert raised.value.problems[0].where == "model"
