from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from analysis.reading.facts import facts_of
from experiment_utils.run_folder import RunFolder


def test_they_are_what_the_run_wrote(done_run: Any) -> None:
    facts = facts_of(done_run.path)
    run = RunFolder(done_run.path)
    values = facts["values"]
    assert facts["damage"] == []
    assert values["val_loss"] == run.evals[-1]["loss"]
    assert values["best_val_loss"] == min(record["loss"] for record in run.evals)
    assert values["train_loss"] == run.column("train_loss")[-1]
    assert (values["tokens"], values["step"]) == (500 * 4096, 500)
    assert (values["model"], values["lr"], values["seed"]) == ("32d", 0.003, 0)
    assert values["tokens_per_s"] == 500 * 4096 / 62.5
    assert facts["config"]["optimizer.lr"] == 0.003
    assert not values["diverged"]
    json.dumps(facts, allow_nan=False)


def test_a_loss_that_is_not_finite_is_a_fact(diverged_run: Any) -> None:
    values = facts_of(diverged_run.path)["values"]
    assert values["diverged"]
    assert math.isnan(values["train_loss"])
    assert math.isfinite(values["val_loss"])


def test_the_config_of_the_newest_attempt_goes_before_an_edited_file(done_run: Any) -> None:
    done_run.run(config={"optimizer": {"lr": 0.5}})
    assert facts_of(done_run.path)["values"]["lr"] == 0.5


def test_a_run_of_a_version_without_evals_has_the_losses_of_its_metrics(done_run: Any) -> None:
    run = RunFolder(done_run.path)
    last = [loss for loss in run.column("val_loss") if math.isfinite(loss)][-1]
    (done_run.path / "evals.jsonl").unlink()
    assert facts_of(done_run.path)["values"]["val_loss"] == last


def test_columns_of_another_version_are_missing_and_not_wrong(new_run: Callable[..., Any]) -> None:
    made = new_run()
    made.config()
    (made.path / "metrics.csv").write_text("step,train_loss,colour\n1,5.5,blue\n2,5.25,red\n")
    values = facts_of(made.path)["values"]
    assert (values["step"], values["train_loss"], values["tokens"], values["seconds"]) == (
        2,
        5.25,
        None,
        None,
    )


def test_a_folder_full_of_ruins_is_a_row_of_nothing(new_run: Callable[..., Any]) -> None:
    made = new_run()
    (made.path / "metrics.csv").mkdir()
    (made.path / "run.json").write_text('{"identity": "6a')
    (made.path / "status.json").write_text("[1]")
    (made.path / "evals.jsonl").write_text('{"loss": 1}\n{"st')
    (made.path / "config.yaml").write_text("a: [")
    facts = facts_of(made.path)
    assert facts["values"]["val_loss"] is None
    assert facts["config"] == {}
    assert len(facts["damage"]) == 5
