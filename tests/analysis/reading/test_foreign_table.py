"""Tables with a row for each run, and curves whose columns have gaps, as other programs write them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.reading import curve, read_study
from experiment_utils.errors import UserError
from tests.golden_text import Golden

WANDB = """"Name","State","Notes","Created","lr","model","seed","val_loss"
"calm-fog","finished","two
lines","2024-01-01","0.001","32d","0","3.3"
"calm-fog","crashed","-","2024-01-01","0.003","32d","0","9.5"
"icy-sun","finished","-","2024-01-02","0.003","32d","1","3.1"
"""
MLFLOW = """,run_id,status,metrics.val_loss,params.lr,params.bs
0,a0,FINISHED,3.3,0.001,64
1,a1,FINISHED,3.1,0.003,64
2,a2,FAILED,,0.01,128
3,a3,FINISHED,3.2,0.03,128
"""
RATES = "lr,val_loss\n0.001,3.3\n0.003,3.1\n0.01,3.2\n"
GRID = "bs,lr,N,loss\n" + "".join(f"{bs},{lr},1e9,3.{bs}\n" for lr in (1, 2, 3) for bs in (64, 128, 256))
SIZES = "Model Size,Training Tokens,loss\n1e8,2e9,3.4\n3e8,6e9,3.2\n1e9,2e10,3\n"
LIGHTNING = (
    "epoch,step,train_loss,val_loss\n0,49,5,\n0,99,4,\n0,99,,4.2\n1,149,3.5,\n1,199,,3.7\n1,249,3.4,\n"
)


def written(folder: Path, text: str) -> str:
    (folder / "given.csv").write_text(text)
    return str(folder / "given.csv")


def test_runs_of_wandb_are_rows_and_one_that_crashed_does_not_count(tmp_path: Path) -> None:
    study = read_study([written(tmp_path, WANDB)])
    assert [(run.value("lr"), run.state, run.counts) for run in study.runs] == [
        (0.001, None, True), (0.003, "crashed", False), (0.003, None, True),
    ]  # fmt: skip
    assert len({run.folder for run in study.runs}) == 3
    assert study.noun == "run"
    assert not study.skipped


def test_runs_of_mlflow_are_rows_with_its_names(tmp_path: Path) -> None:
    study = read_study([written(tmp_path, MLFLOW)])
    assert [(run.name, run.counts) for run in study.runs] == [
        ("a0", True), ("a1", True), ("a2", False), ("a3", True),
    ]  # fmt: skip
    assert study.column("lr") == "params.lr"
    assert study.named_facts == {"params.bs"}


@pytest.mark.parametrize(
    "text", [RATES, GRID, SIZES, MLFLOW.replace("run_id", "what").replace("status", "a")]
)
def test_a_table_without_names_of_runs_is_refused_and_read_with_rows(tmp_path: Path, text: str) -> None:
    given = written(tmp_path, text)
    refused = read_study([given])
    assert not refused.runs
    assert "--rows" in refused.skipped[0][1]
    assert len(read_study([given], rows=True).runs) == text.count("\n") - 1


def test_rows_of_several_runs_are_refused(tmp_path: Path, golden: Golden) -> None:
    given = written(tmp_path, "run,step,loss\na,1,5\na,2,4\nb,1,5\nb,2,3\n")
    golden.text(read_study([given]).skipped[0][1])


@pytest.mark.parametrize("setting", ["lr", "experiment"])
def test_curves_one_below_the_other_are_refused(setting: str, tmp_path: Path, golden: Golden) -> None:
    one, other = ("0.1", "0.2") if setting == "lr" else ("a", "b")
    rows = f"{one},1,5\n{one},2,4\n{other},1,5\n{other},2,3\n"
    given = written(tmp_path, f"{setting},step,loss\n{rows}")
    golden.text(read_study([given]).skipped[0][1])
    assert read_study([given], pattern="{name}.csv").runs[0].value("loss") == 3


def test_batches_that_are_counted_within_an_epoch_are_a_curve(tmp_path: Path) -> None:
    rows = [f"{epoch},{batch},{5 - epoch}" for epoch in range(3) for batch in range(4)]
    given = written(tmp_path, "\n".join(["epoch,batch,loss", *rows]))
    assert [run.value("loss") for run in read_study([given]).runs] == [3]


def test_a_first_line_of_numbers_is_refused(tmp_path: Path) -> None:
    assert "names" in read_study([written(tmp_path, "1,5\n2,4\n3,3\n")]).skipped[0][1]


@pytest.mark.parametrize("word", ["NA", "N/A", "null", "None", "-"])
def test_words_for_no_value_are_gaps_of_a_column_of_numbers(word: str, tmp_path: Path) -> None:
    given = written(tmp_path, f"step,val_loss,schedule\n1,5,none\n2,4,none\n3,{word},none\n")
    run = read_study([given]).runs[0]
    assert (run.value("val_loss"), run.value("schedule")) == (4, "none")


def test_curves_stay_curves(tmp_path: Path) -> None:
    """Also with a run's name in each row, after a resume, and without steps if --pattern names the file."""
    for number, text in enumerate(
        (
            "run,step,loss\na,1,5\na,2,4\n",
            "step,loss\n1,5\n2,4\n3,3.5\n2,4\n3,3\n",
            "Wall time,Value\n2026-11-03 10:00,5\n2026-11-03 11:00,4\n",
            "index,run,tokens\n0,1,100\n1,1,200\n",
        )
    ):
        (tmp_path / f"{number}.csv").write_text(text)
    assert [run.is_row for run in read_study([str(tmp_path)]).runs] == [False] * 4
    given = written(tmp_path, "train_loss,val_loss\n5,5\n4,4\n")
    assert not read_study([given]).runs
    assert read_study([given], pattern="{name}.csv").runs[0].value("val_loss") == 4


def test_last_value_of_a_column_with_gaps_is_taken(tmp_path: Path) -> None:
    run = read_study([written(tmp_path, LIGHTNING)]).runs[0]
    assert [run.value(name) for name in ("step", "train_loss", "val_loss")] == [249, 3.4, 3.7]


def test_a_blank_loss_is_left_out_and_has_not_diverged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lr in (0.001, 0.003, 0.01, 0.03):
        loss = "" if lr == 0.03 else f"{3 + abs(lr - 0.003)}"
        (tmp_path / f"lr_{lr}.csv").write_text(f"step,train_loss,val_loss\n1,5,\n2,,{loss}\n3,4,\n")
    assert main(["best-lr", str(tmp_path), "--pattern", "lr_{lr}.csv", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [rate["lr"] for rate in found["rates"]] == [0.001, 0.003, 0.01]
    assert found["diverged"] == []
    assert [line.partition(":")[0] for line in found["left_out"]] == ["lr_0.03"]


@pytest.mark.parametrize("command", ["curves", "live", "export"])
def test_a_table_of_runs_has_no_curves(tmp_path: Path, command: str) -> None:
    given = written(tmp_path, WANDB)
    more = {"export": ["--to", "csv", "-o", str(tmp_path / "out.csv")]}.get(command, [])
    assert main([command, given, *more]) == 2
    with pytest.raises(UserError):
        curve(read_study([given]).runs[0], ["val_loss"])


def test_settings_of_rows_set_runs_of_one_size_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{lr},{bs},1e9,{3 + abs(lr - 2) + bs / 1000}" for bs in (64, 128) for lr in (1, 2, 3)]
    given = written(tmp_path, "lr,bs,N,loss\n" + "\n".join(rows))
    assert main(["best-lr", given, "--rows", "--size", "N", "--json"]) == 0
    assert [one["setup"] for one in json.loads(capsys.readouterr().out)] == ["bs 128", "bs 64"]


def test_a_loss_that_is_blank_to_the_end_is_nan(tmp_path: Path, golden: Golden) -> None:
    """pandas writes the nan of a run that diverged as blank fields, as if nothing had been logged."""
    head = "".join(f"{step},{4 - step / 100},{'3.9' if step % 10 == 9 else ''}\n" for step in range(50))
    path = written(tmp_path, "step,loss,val_loss\n" + head + "".join(f"{step},,\n" for step in range(50, 90)))
    (run,) = read_study([path]).runs
    assert [math.isnan(run.value(name)) for name in ("loss", "val_loss")] == [True, True]
    golden.text("\n".join(run.damage))


def test_a_gap_at_the_end_as_long_as_others_is_none(tmp_path: Path) -> None:
    evaluated = {1, 2, 4, 8, 16, 32}
    rows = "".join(f"{step},4,{'3.9' if step in evaluated else ''}\n" for step in range(1, 60))
    (run,) = read_study([written(tmp_path, "step,loss,val_loss\n" + rows)]).runs
    assert run.value("val_loss") == 3.9
    assert not run.damage


@pytest.mark.parametrize("steps", [[*range(10), *range(5, 8)], [*range(50, 100), *range(50)]])
def test_rows_whose_last_is_not_the_furthest_are_refused(
    tmp_path: Path, steps: list[int], golden: Golden
) -> None:
    rows = "".join(f"{step},{4 - step / 100}\n" for step in steps)
    written(tmp_path, "step,val_loss\n" + rows)
    study = read_study([str(tmp_path)])
    assert not study.runs
    golden.text(study.skipped[0][1])


def test_a_resumed_run_that_went_further_counts(tmp_path: Path) -> None:
    rows = "".join(
        f"{step},{number},{4 - step / 100}\n" for number, step in enumerate([*range(10), *range(5, 14)])
    )
    (run,) = read_study([written(tmp_path, "step,row,val_loss\n" + rows)]).runs
    assert run.value("val_loss") == 3.87


@pytest.mark.parametrize("second", ["step,loss", "step,loss,val_loss"])
def test_a_second_header_is_refused(tmp_path: Path, second: str, golden: Golden) -> None:
    """A logger that appends writes its header again, with other columns when a metric was added."""
    more = ",3.5" * (second.count(",") - 1)
    rows = "".join(f"{step},{4 - step / 100}{more}\n" for step in range(5, 10))
    written(tmp_path, f"step,loss\n0,4\n1,3.9\n{second}\n" + rows)
    study = read_study([str(tmp_path)])
    assert not study.runs
    golden.text(study.skipped[0][1])
