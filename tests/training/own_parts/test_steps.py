"""Registered steps: they compute the loss of a micro-batch, and all else stays ours."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranked import RankProcesses
from tiny_run import assert_same_numbers, column, make_run, mixed_config, run_here

from conf.between_keys.ensembles import ensemble_problems
from conf.own_parts.use import use_plugins
from conf.schema import Ensemble
from experiment_utils.errors import UserError
from tests.training.own_parts.conftest import Own
from training.own_parts.facts import facts_of

STEP = """
import torch.nn.functional as F
from highwater import register

@register.step("with_auxiliary")
def with_auxiliary(model, batch, options):
    labels = batch["labels"]
    assert model.training
    logits = model(batch["input_ids"]).float()
    lm_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return lm_loss + WEIGHT * logits.logsumexp(-1).square().mean(), {"lm_loss": lm_loss}
"""


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankProcesses]:
    processes = RankProcesses()
    yield processes
    processes.close()


def test_a_step_without_auxiliary_term_is_ours(own: Own, tmp_path: Path) -> None:
    config = own(STEP.replace("WEIGHT", "0.0"), step="with_auxiliary")
    training = dataclasses.replace(config.training, step="default")
    ours = dataclasses.replace(config, training=training, runs_dir=str(tmp_path / "ours"))
    folders = [make_run(config), make_run(ours)]
    assert folders[0].name != folders[1].name
    for folder in folders:
        assert run_here(folder, "--quiet").returncode == 0
    assert_same_numbers(*folders)


def test_the_auxiliary_term_is_minimized_and_not_recorded(own: Own) -> None:
    folder = make_run(own(STEP.replace("WEIGHT", "0.1"), step="with_auxiliary"))
    assert run_here(folder, "--quiet").returncode == 0
    # with the term the loss of a new model over 257 ids is 5.5 + 0.1 * 5.5 ** 2
    assert 5.0 < column(folder, "train_loss")[0] < 6.0
    assert column(folder, "grad_norm")[0] > 0


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_have_the_losses_of_one(
    own: Own, ranks: RankProcesses, tmp_path: Path, parallel: str
) -> None:
    source = STEP.replace("WEIGHT", "0.1")
    config = own(source, step="with_auxiliary", micro_batch=1)
    shared = dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, parallel=parallel),
        runs_dir=str(tmp_path / "shared"),
    )
    alone, together = make_run(config), make_run(shared)
    assert run_here(alone, "--quiet").returncode == 0
    assert ranks.run(together, 2) == [0, 0]
    assert_same_numbers(together, alone)
    shutil.rmtree(together)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return model(batch['input_ids'])", "step-value"),
        ("return model(batch['input_ids']).sum().detach()", "step-value"),
        ("return model(batch['input_ids']).sum(), {'loss': 1}", "step-value"),
        ("return model(batch['input_ids']).sum() * float('nan')", "step-value"),
        ("return batch['ids']", "part-fails"),
    ],
)
def test_wrong_steps_are_refused(own: Own, body: str, code: str) -> None:
    head = "from highwater import register\n@register.step('mine')\ndef mine(model, batch, options):\n"
    source = f"{head}    {body}\n"
    config = own(source, step="mine")
    use_plugins(config.plugins, around=False)
    with pytest.raises(UserError) as raised:
        facts_of(config, 64)
    assert raised.value.problems[0].code == code
    assert raised.value.problems[0].where.startswith(f"{config.plugins[0]}:")


def test_mixtures_and_ensembles_are_refused(own: Own, tmp_path: Path) -> None:
    config = own(STEP.replace("WEIGHT", "0.1"), step="with_auxiliary")
    use_plugins(config.plugins, around=False)
    mixture = dataclasses.replace(config, dataset=mixed_config(tmp_path).dataset)
    with pytest.raises(UserError) as raised:
        facts_of(mixture, 64)
    assert [problem.code for problem in raised.value.problems] == ["step-mixture"]
    ensemble = dataclasses.replace(config, ensemble=Ensemble(lr=["0.001", "0.002"]))
    assert [problem.where for problem in ensemble_problems(ensemble)] == ["plugins"]
