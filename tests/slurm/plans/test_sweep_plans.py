"""Plans of a whole sweep: problems together, one table, sums that count each run once."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_run import make_run, run_core, tiny_config, write_text

import data_loading
from conf import Config
from conf.composing.overrides import Setting, parse
from conf.schema import Dataset, Ensemble, Study
from data_loading import Data, prepare_data
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from memory.estimate.available import Room
from memory.estimate.estimate import Estimate, Part
from slurm.plans.gpu_slots import GpuSlot
from slurm.plans.sweep_plans import check_side_by_side, plan_all, plan_ensembles, render_plans
from slurm.submit.request_checks import check_swept
from tests.golden_text import Golden
from training.attempt.begin import create_run
from training.attempt.run_files import Status, record_attempt
from training.ensemble.size_probe import GroupSize
from training.plan.run_plan import Plan, make_plan, resolve, run_cost, shape_of


def lines_of(plans: Sequence[Plan]) -> list[str]:
    """The table and its sum, without warnings."""
    return [line for line in render_plans(plans).splitlines() if not line.startswith("warning: ")]


def test_one_plan_is_its_page(tmp_path: Path) -> None:
    (plan,) = plan_all([tiny_config(tmp_path)], tokenize=False)
    assert render_plans([plan]) == plan.render()


def test_a_run_in_two_studies_is_two_runs(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    configs = [dataclasses.replace(config, study=Study(name)) for name in ("a", "b")]
    header, *rows, total = lines_of(plan_all(configs, tokenize=True))
    assert [line.split()[0] for line in (header, *rows)] == ["study", "a", "b"]
    assert total.startswith("2 runs, ")


def test_json_of_an_ensemble_has_the_memory_of_its_process(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    alone = plan_all([config], tokenize=True)[0].memory.estimate.host_bytes
    together = dataclasses.replace(config, ensemble=Ensemble(seed=["0", "1", "2"], together=3))
    (ensemble,) = plan_ensembles([together])
    memory = [plan["memory"]["host_bytes"] for plan in ensemble.to_json()]
    assert memory == [ensemble.memory.estimate.host_bytes] * 3
    assert memory[0] > alone


def test_memory_of_an_ensemble_includes_the_largest_probed_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path)
    needs = {}
    for sizes in ({}, {2: 0.9, 3: 1.0}):
        choice = GroupSize(1, sizes)
        monkeypatch.setattr("training.ensemble.size_probe.probe", lambda *_, choice=choice: choice)
        (ensemble,) = plan_ensembles([dataclasses.replace(config, ensemble=Ensemble(seed=["0", "1", "2"]))])
        needs[len(sizes)] = ensemble.memory.estimate.host_bytes
    together = dataclasses.replace(config, ensemble=Ensemble(seed=["0", "1", "2"], together=3))
    assert needs[2] == plan_ensembles([together])[0].memory.estimate.host_bytes > needs[0]


def test_runs_side_by_side_have_to_fit_together(tmp_path: Path, golden: Golden) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path), seed=seed) for seed in range(3)]
    plans = plan_all(configs, tokenize=True)
    each = plans[0].memory.estimate.host_bytes
    room = Room(int(2.5 * each), "/job", 0)
    plans = [dataclasses.replace(plan, memory=dataclasses.replace(plan.memory, room=room)) for plan in plans]
    check_side_by_side(plans, 1)
    check_side_by_side(plans, 2)
    with golden.refused("too-many-jobs", numbers=False) as error:
        check_side_by_side(plans, 3)
    assert "hydra.launcher.jobs=2." in str(error.value)


def test_runs_that_share_a_gpu_have_to_fit_in_it_together(tmp_path: Path, golden: Golden) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path), seed=seed) for seed in range(4)]
    plans = []
    for plan in plan_all(configs, tokenize=True):
        estimate = Estimate((Part("weights", gpu_bytes=30),))
        memory = dataclasses.replace(plan.memory, estimate=estimate, room=Room())
        plans.append(dataclasses.replace(plan, memory=memory))

    def slots(count: int, gpus: int) -> list[GpuSlot]:
        return [GpuSlot(str(slot % gpus), -(-count // gpus), 80) for slot in range(count)]

    check_side_by_side(plans, 2, slots(2, 1))
    check_side_by_side(plans, 4, slots(4, 2))
    check_side_by_side(plans, 8, slots(8, 2))
    with golden.refused("too-many-jobs"):
        check_side_by_side(plans, 4, slots(4, 1))


def test_equal_runs_count_once(tmp_path: Path, golden: Golden) -> None:
    config = tiny_config(tmp_path)
    other = dataclasses.replace(config, seed=1)
    table = lines_of(plan_all([config, other, config], tokenize=True))
    assert len(table) == 5
    assert {line[:13] for line in table[1:4]} == {"tiny-lr0.003-"}
    assert f" {2 * 40 * 4 * 16:,} tokens" in table[-1]
    golden.text(table[-1], numbers=False)
    assert max(map(len, table)) < 110


def test_what_no_name_tells_has_a_column(tmp_path: Path) -> None:
    configs = [tiny_config(tmp_path, effective_batch=batch, micro_batch="auto") for batch in (4, 8)]
    header, first, second, _ = lines_of(plan_all(configs, tokenize=True))
    at = header.index("effective_batch")
    assert (first[at : at + 2], second[at : at + 2]) == ("4 ", "8 ")
    assert header.split() == [
        "run",
        "effective_batch",
        "parameters",
        "tokens",
        "steps",
        "FLOPs",
        "memory",
        "state",
    ]


def test_a_text_that_is_not_tokenized_is_named(tmp_path: Path, golden: Golden) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path), seed=seed) for seed in (0, 1)]
    table = lines_of(plan_all(configs, tokenize=False))
    assert str(tmp_path / "tiny.txt") in table[-1]
    golden.text(table[-1], numbers=False)


@pytest.mark.slow
def test_what_is_done_already_is_told(tmp_path: Path, golden: Golden) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path, max_steps=2), seed=seed) for seed in (0, 1)]
    assert run_core(make_run(configs[0])).returncode == 0
    table = lines_of(plan_all(configs, tokenize=False))
    assert table[1].endswith("done")
    golden.text(table[-1], numbers=False)


def test_problems_of_all_runs_come_together_and_once(tmp_path: Path) -> None:
    wrong = [tiny_config(tmp_path, max_steps=10**9), tiny_config(tmp_path, seq_len=10**6)]
    with pytest.raises(UserError) as raised:
        plan_all([*wrong, tiny_config(tmp_path), *wrong], tokenize=True)
    assert [problem.where for problem in raised.value.problems] == [
        "training.max_steps",
        "training.seq_len",  # of train
        "training.seq_len",  # of val
    ]


@pytest.mark.parametrize("tokenize", [True, False])
def test_data_that_runs_share_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenize: bool
) -> None:
    asked = []

    def prepare_and_count(dataset: Dataset, *rest: Any, **how: Any) -> Data:
        asked.append(dataset.path)
        return prepare_data(dataset, *rest, **how)

    monkeypatch.setattr(data_loading, "prepare_run", prepare_and_count)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = tiny_config(tmp_path / "a"), tiny_config(tmp_path / "b")
    many = [dataclasses.replace(config, seed=seed) for seed in range(5) for config in (first, second)]
    plans = plan_all(many, tokenize=tokenize)
    assert sorted(asked) == [first.dataset.path, second.dataset.path]
    assert [plan.config.seed for plan in plans] == [config.seed for config in many]
    assert len({plan.parameters for plan in plans}) == 1


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "": [{"seed": 0}, {"seed": 7}, {"seed_init": 1, "seed_data": 2}, {"notes": "a"}],
    "optimizer": [
        {"lr": 1e-3}, {"lr": 3e-2, "beta1": 0.5, "beta2": 0.99, "weight_decay": 0.0}, {"name": "sgd"},
    ],
    "schedule": [{"name": "constant"}, {"name": "wsd", "warmup_steps": 3}],
    "model": [{"d_model": 16}, {"d_model": 32, "n_heads": 4}],
    "training": [
        {"micro_batch": "auto"}, {"effective_batch": 8}, {"max_steps": None}, {"max_steps": 10**7},
        {"seq_len": 8, "milestones": ["1K"]}, {"threads": 2},
    ],
    "study": [{"name": "a"}, {"name": "b"}],
    "memory": [{"margin": 0.3}],
}  # fmt: skip


def with_values(config: Config, group: str, values: dict[str, Any]) -> Config:
    if not group:
        return dataclasses.replace(config, **values)
    return dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **values)})


CHOICES = st.fixed_dictionaries(
    {}, optional={group: st.sampled_from(each) for group, each in VARIANTS.items()}
)


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = tiny_config(tmp_path_factory.mktemp("tokenized"))
    plan_all([config], tokenize=True)
    return config


@settings(max_examples=30, deadline=None)
@given(st.lists(CHOICES, min_size=1, max_size=6))
def test_plans_of_a_sweep_are_those_of_its_runs_alone(
    tokenized: Config, sweep: list[dict[str, dict[str, Any]]]
) -> None:
    configs = []
    for choices in sweep:
        config = tokenized
        for group, values in choices.items():
            config = with_values(config, group, values)
        configs.append(config)
    alone: list[dict[str, Any] | set[Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.plan.run_plan.room_here", lambda **_: Room(1 << 30, "host", 0))
        for config in configs:
            try:
                alone.append(make_plan(config, tokenize=True).to_json())
            except UserError as error:
                alone.append(set(error.problems))
        wrong = {problem for one in alone if isinstance(one, set) for problem in one}
        try:
            found = plan_all(configs, tokenize=True)
        except UserError as error:
            ours = {one for one in error.problems if one.code != "different-settings-of-a-run"}
            assert ours == wrong
        else:
            assert [plan.to_json() for plan in found] == alone


@given(CHOICES)
def test_what_a_shape_leaves_out_changes_no_cost(
    tokenized: Config, choices: dict[str, dict[str, Any]]
) -> None:
    config = tokenized
    for group, values in choices.items():
        config = with_values(config, group, values)
    data = prepare_data(config.dataset, config.tokenizer, tokenize=False)
    room = Room(1 << 30, "host", 0)
    try:
        whole, shape = (
            run_cost(one, data, None, room=room) for one in (resolve(config), shape_of(resolve(config)))
        )
    except UserError:
        return
    assert (whole, whole.memory) == (shape, shape.memory)


def test_a_run_with_two_settings_is_refused(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    sweep = [with_values(config, "training", {"threads": threads}) for threads in (1, 2)]
    with pytest.raises(UserError) as raised:
        plan_all([*sweep, dataclasses.replace(config, seed=1), *sweep], tokenize=True)
    assert [problem.where for problem in raised.value.problems] == ["training.threads"]
    assert {problem.code for problem in raised.value.problems} == {"different-settings-of-a-run"}
    apart = [with_values(one, "study", {"name": name}) for one, name in zip(sweep, "ab", strict=True)]
    assert len(plan_all(apart, tokenize=True)) == 2


class TestMoreWasAppended:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        """Of a set of shards that can grow."""
        form = Options(shard_tokens=5000, val_fraction=0.2)
        config = tiny_config(tmp_path)
        pretokenize(TextFile(tmp_path / "tiny.txt"), BytesTokenizer(), tmp_path / "set", form)
        return dataclasses.replace(
            config, dataset=dataclasses.replace(config.dataset, path=str(tmp_path / "set"), repeat=True)
        )

    def begin(self, config: Config, state: str) -> Path:
        (plan,) = plan_all([config], tokenize=True)
        folder = create_run(plan.config, str(plan.identity))
        record_attempt(folder, plan.to_json(), {}, {}, {})
        Status(folder, 1).update(state=state)
        return folder

    def append(self, config: Config) -> None:
        path = Path(str(config.dataset.path))
        more = write_text(path.with_name(f"more{len(list(path.glob('*.json')))}.txt"), 3000)
        more.write_text(f"{more.name} {more.read_text()}")
        pretokenize(TextFile(more), BytesTokenizer(), path, Options(append=True))

    @pytest.mark.parametrize("appended", [1, 2])
    def test_what_is_not_done_goes_on(
        self, config: Config, appended: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun = self.begin(config, "cancelled")
        for _ in range(appended):
            self.append(config)
        with caplog.at_level("INFO"):
            (plan,) = plan_all([config], tokenize=True)
        assert (plan.folder, plan.state) == (begun, "cancelled")
        (told,) = [line for line in caplog.messages if begun.name in line]
        assert "study.name=NAME" in told
        other = dataclasses.replace(config, study=dataclasses.replace(config.study, name="more"))
        (new,) = plan_all([other], tokenize=True)
        assert new.data is not None
        assert plan.data is not None
        assert new.data["tokens"] > plan.data["tokens"]

    def test_a_mixture_with_a_grown_source_goes_on(self, config: Config, tmp_path: Path) -> None:
        write_text(tmp_path / "other.txt", 4000)
        options = {"name": "mix", "source": "mix", "path": None, "repeat": False, "when_dry": "repeat"}
        sources = [str(config.dataset.path), str(tmp_path / "other.txt")]
        mixed = dataclasses.replace(
            config, dataset=Dataset(**options, sources=sources, weights=["0.5", "0.5"])
        )
        begun = self.begin(mixed, "cancelled")
        self.append(config)
        (plan,) = plan_all([mixed], tokenize=True)
        assert (plan.folder, plan.state) == (begun, "cancelled")

    def test_what_is_done_stays(self, config: Config) -> None:
        done = self.begin(config, "done")
        self.append(config)
        (plan,) = plan_all([config], tokenize=True)
        assert plan.folder != done
        assert plan.state is None

    def test_another_run_is_not_taken_for_it(self, config: Config) -> None:
        self.begin(config, "cancelled")
        self.append(config)
        longer = dataclasses.replace(config.training, max_steps=41)
        (plan,) = plan_all([dataclasses.replace(config, training=longer)], tokenize=True)
        assert plan.state is None

    def test_the_newest_of_its_own_comes_first(self, config: Config) -> None:
        self.append(config)
        newer = self.begin(config, "cancelled")
        self.append(config)
        assert self.begin(config, "cancelled") == newer


@pytest.mark.parametrize(
    ("argument", "is_swept"),
    [
        ("training.threads=1,2", False), ("slurm.mem=1GB,2GB", False), ("memory=default,off", False),
        ("seed=0,1", True), ("study.name=a,b", True), ("model=32d,64d", True), ("training.threads=1", True),
        ("dataset.path=a.txt,b.txt", True),
    ],
)  # fmt: skip
def test_keys_that_make_no_other_run_cannot_be_swept(argument: str, is_swept: bool) -> None:
    setting = parse(argument, lambda group: [])
    assert isinstance(setting, Setting)
    with contextlib.nullcontext() if is_swept else pytest.raises(UserError) as error:
        check_swept({setting.key: setting})
    assert is_swept or [problem.where for problem in error.value.problems] == [setting.key]
