"""What a command line asks for: every run of it, or every mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from conf import Config
from conf.compose import Composer
from conf.request import MOST_RUNS, Request, read_request, read_run
from conf.rules import Rule
from experiment_utils.errors import Problem, UserError


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def request_of(composer: Composer, *arguments: str, multirun: bool = False) -> Request:
    return read_request(list(arguments), composer, multirun=multirun, command="this command")


def mistakes(composer: Composer, *arguments: str, multirun: bool = False) -> list[str]:
    with pytest.raises(UserError) as raised:
        request_of(composer, *arguments, multirun=multirun)
    return [str(problem) for problem in raised.value.problems]


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


def test_a_study_that_sweeps_needs_multirun(composer: Composer) -> None:
    assert mistakes(composer, "study=lr_sweep", "notes=a b") == [
        "study: lr_sweep is a sweep of 8 runs; start it with: this command"
    ]


def test_a_sweep_needs_multirun(composer: Composer) -> None:
    sizes, notes = mistakes(composer, "model=32d,64d", "notes=a,b")
    assert sizes.endswith("start it with: this command")
    assert notes == "notes: `a,b` is a sweep; for one text with commas: 'notes=\"a,b\"'"
    assert request_of(composer, 'notes="a,b"').runs[0].config.notes == "a,b"


@pytest.mark.parametrize(("second", "lost"), [("seed=3", "3"), ("seed=4,5", "4,5")])
def test_a_sweep_that_the_same_key_would_replace_is_refused(
    composer: Composer, second: str, lost: str
) -> None:
    """Hydra's own sweeper drops the first of the two and says nothing."""
    (found,) = mistakes(composer, "seed=0,1", second, multirun=True)
    assert f"the sweep 0,1 would be lost to {lost}" in found
    assert len(request_of(composer, "seed=3", "seed=0,1", multirun=True).runs) == 2
    assert len(request_of(composer, "seed=3", "seed=4").runs) == 1


def test_multirun_may_come_as_hydras_mode(composer: Composer) -> None:
    assert len(request_of(composer, "model=32d,64d", "hydra.mode=MULTIRUN").runs) == 2


def test_study_name_follows_the_study(composer: Composer) -> None:
    assert request_of(composer).runs[0].config.study.name is None
    named = request_of(composer, "study=seeds", "study.name=mine", multirun=True)
    assert {run.config.study.name for run in named.runs} == {"mine"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["model=257d"], "model: no size `257d`; nearest: 256d, 224d, 320d (all: 32d 48d 64d"),
        (["model=256"], "model: no size `256`; nearest: 256d, 224d"),
        (["model="], "model: no size ``; choices: 32d 48d"),
        (["model=null"], "model: no size `null`"),
        (["schedule=cosin"], "schedule: no option `cosin`; nearest: cosine"),
        (["dataset=hf://a/b"], "This is a place, not a name: dataset=hf dataset.path=hf://a/b"),
        (["dataset=mine.txt"], "This is a place, not a name: dataset.path=mine.txt"),
        (
            ["optimizer={lr: 3}"],
            "optimizer: expected the name of an option; to set a key of it: optimizer.lr=VALUE",
        ),
        (["model=32d", "model=64d"], "model: is chosen twice: 32d and 64d"),
        (["+training.lrr=1"], "training.lrr: no such key; nearest: optimizer.lr"),
        (["++training.lrr=1"], "training.lrr: no such key; nearest: optimizer.lr"),
        (["training.lr=1"], "training.lr: no such key; nearest: optimizer.lr"),
        (["modle=32d"], "modle: no such key; nearest: model"),
        (["model@x=32d"], "model@x: no such key"),
        (["hydra=3"], "hydra: no such key"),
        (
            ["~optimizer.grad_clip"],
            "cannot be deleted, every key has a value; optimizer.grad_clip=null is none",
        ),
        (["~optimizer.lr"], "its default is optimizer.lr=0.003"),
        (["~dataset.repeat"], "its default is dataset.repeat=false"),
        (["~model"], "choose another one with model=NAME"),
        (["~study"], "leave study= out"),
        (["~training.lrr"], "training.lrr: no such key; nearest: optimizer.lr"),
        (["optimizer.lr=${foo.bar}"], "optimizer.lr: cannot resolve `${foo.bar}`"),
        (["notes=${hydra:job.name}"], "notes: cannot resolve"),
        (["hydra/launcher=lcal"], "hydra/launcher: no option `lcal`; nearest: local"),
        (
            ["hydra/sweeper=nevergrad"],
            "hydra/sweeper: no option `nevergrad`; choices: basic halving local. It comes with: "
            "pip install hydra-nevergrad-sweeper",
        ),
        (["hydra/lancher=local"], "hydra/lancher: Hydra has no such group; nearest: hydra/launcher"),
        (["hydra.launcher=null"], "hydra.launcher: expected what hydra/launcher=NAME brings"),
        (["hydra.launcher=foo"], "(choices: local, slurm), got foo"),
        (["~hydra/launcher"], "hydra.launcher: expected what hydra/launcher=NAME brings"),
        (["hydra.sweeper=null"], "hydra.sweeper: expected what hydra/sweeper=NAME brings"),
        (["hydra.sweeper.params=3"], "hydra.sweeper.params: expected keys and their values, got 3"),
        (["hydra.launcher.jobs=0"], "hydra.launcher.jobs: expected a whole number at least 1, got 0"),
        (["hydra.launcher.jobs=two"], "hydra.launcher.jobs: expected a whole number"),
        (["hydra.launcher.jbos=2"], "hydra.launcher.jbos: no such key; nearest: hydra.launcher.jobs"),
        (["hydra.nothing.at=2"], "hydra.nothing.at:"),
        (["hydra.job.chdir=maybe"], "hydra.job.chdir: "),
        (["hydra.launcher.jobs=1,2"], "hydra.launcher.jobs: cannot be swept"),
        (["hydra.run.dir=out"], "hydra.run.dir: has no effect here"),
        (["hydra.sweep.subdir=x"], "hydra.sweep.subdir: has no effect here"),
        (["hydra.job.chdir=true"], "hydra.job.chdir: has no effect here"),
        (["hydra/job_logging=default"], "hydra/job_logging: has no effect here"),
        (["optimizer=glob(adan*)"], "optimizer: `glob(adan*)` matches nothing; choices: adafactor"),
        (["training.seq_len=glob(*)"], "training.seq_len: `glob(*)` matches nothing"),
        (["seed=range(5,5)"], "seed: `range(5,5)` has no value"),
        (["study=glob(nope*)"], "study: `glob(nope*)` matches nothing; choices: lr_sweep"),
        (["seed=range(0,1000000)"], f"a sweep of more than {MOST_RUNS:,} runs"),
        (
            ["optimizer.lr=interval(1e-4,1e-2)"],
            "optimizer.lr: interval() is for a sweeper that chooses values",
        ),
        (["study=seeds,scaling"], "study: one study at a time"),
        (["plan"], "plan: expected KEY=VALUE, for example plan=true"),
    ],
)
def test_one_mistake(composer: Composer, arguments: list[str], expected: str) -> None:
    told = mistakes(composer, *arguments, multirun=True)
    assert expected in "\n".join(told)
    assert len(told) == 1


def test_a_key_of_hydra_at_the_value_that_holds_is_taken(composer: Composer) -> None:
    assert len(request_of(composer, "hydra.job.chdir=false", "hydra.output_subdir=null").runs) == 1


def test_a_file_that_sets_a_key_of_hydra_without_effect_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    file = tmp_path / "study" / "mine.yaml"
    file.write_text(
        "# @package _global_\nhydra:\n  run:\n    dir: out\n  sweeper:\n    params:\n      seed: 1,2\n"
    )
    (line,) = mistakes(Composer(tmp_path), "study=mine", multirun=True)
    assert line.startswith("hydra.run.dir: has no effect here")
    assert line.endswith(f"(in {file})")


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
    assert [line.partition(":")[0] for line in told] == [
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


def test_a_sweep_says_which_of_its_runs_are_wrong(composer: Composer) -> None:
    told = mistakes(
        composer, "model=32d,64d", "training.micro_batch=4,5", "seed=0,1", "optimizer.lr=-1", multirun=True
    )
    assert told[0] == "optimizer.lr: must be above 0, got -1"
    assert told[1].endswith("(in 4 of 8 runs: training.micro_batch=5)")
    assert len(told) == 2


def test_one_wrong_value_among_many(composer: Composer) -> None:
    (told,) = mistakes(composer, "optimizer.lr=1e-3,0,3e-3", "seed=0,1", multirun=True)
    assert told == "optimizer.lr: must be above 0, got 0 (in 2 of 6 runs: optimizer.lr=0)"


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert told == [
        "optimizer.lrr: no such key; nearest: optimizer.lr",
        "model.d_modell: no such key; nearest: model.d_model (in mine/model/mine.yaml)",
        "optimizer.lr: expected a number above 0, got `fast` (in mine/optimizer/mine.yaml)",
        "modle: no such key; nearest: model, code (in mine/study/mine.yaml)",
        "seed: must be at least 0, got -1 (in the sweep of the study, in 1 of 2 runs: seed=-1)",
    ]


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
    (told,) = mistakes(composer, f"model={option}")
    assert told.startswith(f"model: no size `{option}`")


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
    (run,) = request_of(composer, "notes=costs ${5 (or so)").runs
    assert run.config.notes == "costs ${5 (or so)"


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
    with pytest.raises(UserError, match="no size"):
        read_run(["model=1d2", "seed=x"], composer)
