"""The pages that end a run and a sweep, word for word, and what they must not say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from composed_once import kept_composer
from rich.text import Text

from analysis.next_steps import after_run, after_sweep
from analysis.outcome import outcome_of
from analysis.summary import render_run, render_sweep, run_page
from analysis.sweep import best_row, sweep_page, sweep_row
from analysis.terminal import Terminal
from conf.command_line.arguments import read_arguments
from conf.command_line.request import read_request
from conf.composing.compose import Composer
from experiment_utils.run_folder import RunFolder
from tests.golden_text import Golden

NEW_RUN = Callable[..., Any]


@pytest.fixture(autouse=True)
def stand_in_the_folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def relative(made: Any) -> RunFolder:
    return RunFolder(Path(os.path.relpath(made.path)))


def test_page_of_a_run_that_is_done(done_run: Any, golden: Golden) -> None:
    pictures = [relative(done_run).path / name for name in ("loss.png", "memory.png")]
    golden.text(run_page(relative(done_run), pictures, Terminal()))


def test_page_of_a_run_that_diverged_on_a_plain_terminal(diverged_run: Any, golden: Golden) -> None:
    page = run_page(relative(diverged_run), [], Terminal(unicode=False))
    golden.text(page)
    assert page.isascii()


def test_page_of_a_run_that_was_cancelled_in_its_second_attempt(new_run: NEW_RUN, golden: Golden) -> None:
    made = new_run()
    made.config()
    made.status("cancelled", step=250, stage="train", attempt=2, reason="interrupted (Ctrl-C)")
    made.run(attempts=[{"attempt": 1}, {"attempt": 2}])
    made.losses(250, evals=3)
    made.memory(attempt=1, cycles=2)
    made.memory(attempt=2, cycles=1, limit_mb=900, gpu=True, killed_in="evaluate")
    made.checkpoint(200)
    golden.text(run_page(relative(made), [], Terminal()))


def test_page_of_a_run_that_has_not_started(new_run: NEW_RUN, golden: Golden) -> None:
    golden.text(run_page(relative(new_run()), [], Terminal()))


def test_lines_fit_100_columns(done_run: Any, diverged_run: Any, new_run: NEW_RUN) -> None:
    on_gpu = new_run("256d-lr0.003-seed0-deadbeef")
    on_gpu.memory(gpu=True, error_in="checkpoint")
    for made in (done_run, diverged_run, on_gpu):
        page = run_page(relative(made), [], Terminal())
        assert max(map(len, page.splitlines())) <= 100


def test_a_name_that_is_too_long_is_folded_and_not_cut(new_run: NEW_RUN) -> None:
    name = "a" * 60 + "b" * 60
    rows, _ = sweep_page([sweep_row(relative(new_run(name)))], Terminal()).split("Not done")
    assert rows.count("a") >= 60
    assert rows.count("b") >= 60


def test_colour_changes_no_word(done_run: Any, diverged_run: Any) -> None:
    for made in (done_run, diverged_run):
        plain = run_page(relative(made), [], Terminal())
        colored = run_page(relative(made), [], Terminal(color=True))
        assert "\x1b" not in plain
        assert "\x1b[" in colored
        assert "\n".join(line.rstrip() for line in Text.from_ansi(colored).plain.splitlines()) == plain


@pytest.mark.parametrize("is_leak", [False, True])
def test_leak_at_the_end_is_on_the_page_of_the_run(done_run: Any, is_leak: bool) -> None:
    path = done_run.path / "memory.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    trained = [record for record in records if (record["stage"], record["event"]) == ("train", "end")]
    for record, of_shmem in ((trained[-2], not is_leak), (trained[-1], is_leak)):
        shmem = {"is_leak": of_shmem, "slope_bytes_per_step": 400 << 10}
        record["leak"] = {"is_leak": False, "slope_bytes_per_step": 0, "shmem": shmem}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    page = run_page(relative(done_run), [], Terminal())
    assert ("shm +0.4 MB/step, LEAK" in page) == is_leak


@pytest.mark.parametrize("bigram", [2.4384, 1.5, None])
def test_that_it_learned_is_said_only_when_it_did(
    done_run: Any, bigram: float | None, golden: Golden
) -> None:
    results = relative(done_run).run["results"]
    done_run.run(results=results | {"bigram_val_loss": bigram})
    page = run_page(relative(done_run), [], Terminal())
    golden.text("\n".join(line for line in page.splitlines() if "1.8709" in line))


def test_a_best_loss_before_the_end_is_told(done_run: Any, golden: Golden) -> None:
    results = relative(done_run).run["results"]
    done_run.run(results=results | {"best": {"step": 300, "val_loss": 1.25}})
    page = run_page(relative(done_run), [], Terminal())
    golden.text("\n".join(line for line in page.splitlines() if "1.2500" in line))


def test_a_test_part_is_told_with_its_loss(done_run: Any, golden: Golden) -> None:
    before = relative(done_run).run
    assert "1,290" not in run_page(relative(done_run), [], Terminal())
    facts = {"test_tokens": 1290}
    done_run.run(results=before["results"] | {"test_loss": 1.9}, data=before["data"] | facts)
    page = run_page(relative(done_run), [], Terminal())
    golden.text("\n".join(line for line in page.splitlines() if "1.9000" in line or "1,290" in line))


def test_speed_is_that_of_the_last_half(done_run: Any) -> None:
    path = done_run.path / "metrics.csv"
    rows = path.read_text().splitlines()
    slow = [row.replace(",32768.0,", ",100.0,") for row in rows[1:252]]
    path.write_text("\n".join([rows[0], *slow, *rows[252:]]) + "\n")
    assert "32,768 tokens/s" in run_page(relative(done_run), [], Terminal())


def test_render_run_draws_and_names_the_pictures(done_run: Any) -> None:
    folder = Path(os.path.relpath(done_run.path))
    page = render_run(folder)
    assert {f"{folder}/,", "loss.png,", "memory.png"} <= {*page.split()}
    for name in ("loss", "memory"):
        assert (folder / f"{name}.png").stat().st_size > 10_000
    assert "\x1b" not in page


def test_a_page_comes_without_pictures_where_they_cannot_be_drawn(
    done_run: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def full(path: Path) -> list[Path]:
        raise OSError(28, "full")

    monkeypatch.setattr("analysis.plots.draw_run", full)
    page = render_run(Path(os.path.relpath(done_run.path)))
    assert "python experiments.py" in page
    assert ".png" not in page
    golden.text("\n".join(caplog.messages))


def sweep(new: NEW_RUN, *floors: float) -> list[Any]:
    """Runs of one sweep that end at different losses."""
    made_runs = []
    for index, floor in enumerate(floors):
        made = new(f"32d-lr{0.001 * 3**index:g}-seed0-{index:08d}")
        made.config(lr=0.001 * 3**index)
        made.status()
        val_loss = made.losses(floor=floor)
        made.run(results={"val_loss": val_loss, "best": {"step": 500, "val_loss": val_loss}})
        made_runs.append(made)
    return made_runs


def test_page_of_a_sweep(
    new_run: NEW_RUN, diverged_run: Any, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.sweep.draw_or_tell", lambda folder: [])
    made = [*sweep(new_run, 2.2, 1.9, 2.0), diverged_run, new_run("32d-lr3-seed0-feedbeef")]
    rows = [sweep_row(relative(one)) for one in made]
    golden.text(sweep_page(rows, Terminal()))
    assert "* 32d-lr0.003" in sweep_page(rows, Terminal(unicode=False))
    colored = sweep_page(rows, Terminal(color=True))
    assert "\n".join(line.rstrip() for line in Text.from_ansi(colored).plain.splitlines()) == sweep_page(
        rows, Terminal()
    )
    assert render_sweep([Path(os.path.relpath(one.path)) for one in made]) == sweep_page(rows, Terminal())


def test_what_no_name_tells_has_a_column(new_run: NEW_RUN) -> None:
    made = sweep(new_run, 2.2, 1.9, 2.0)
    for one, batch in zip(made, (4, 8), strict=False):
        one.config(effective_batch=batch)
    (made[2].path / "config.yaml").write_text("{")
    page = sweep_page([sweep_row(relative(one)) for one in made], Terminal())
    _, header, first, second, third = (re.split(r"\s{2,}", line.strip()) for line in page.splitlines()[:5])
    assert header[1] == "effective_batch"
    assert (first[1], second[1], third[1]) == ("4", "8", "-")


def test_each_run_of_a_sweep_gets_its_pictures_once(
    new_run: NEW_RUN, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep(new_run, 2.2, 1.9)
    for one in made:
        one.memory(cycles=1)
    folders = [one.path for one in made]
    render_sweep(folders)
    assert all((folder / name).exists() for folder in folders for name in ("loss.png", "memory.png"))
    drawn: list[Path] = []
    monkeypatch.setattr("analysis.plots.draw_run", lambda folder: drawn.append(folder) or [])
    render_sweep(folders)
    assert drawn == []
    os.utime(made[1].path / "metrics.csv")
    render_sweep(folders)
    assert drawn == [made[1].path]


def test_a_sweep_without_failures_says_nothing_of_them(new_run: NEW_RUN, golden: Golden) -> None:
    page = sweep_page([sweep_row(relative(one)) for one in sweep(new_run, 2.2, 1.9)], Terminal())
    golden.text(page)


def test_the_best_run_is_a_finished_one(new_run: NEW_RUN) -> None:
    first, second, third = sweep(new_run, 1.2, 1.9, 2.0)
    first.status("cancelled", step=300, reason="interrupted (Ctrl-C)")
    rows = [sweep_row(relative(made)) for made in (first, second, third)]
    best = best_row(rows)
    assert best is rows[1]
    assert rows[0].final_val_loss < rows[1].final_val_loss


def test_a_loss_that_is_not_finite_is_never_the_best(new_run: NEW_RUN) -> None:
    first, second = sweep(new_run, 1.2, 1.9)
    with open(first.path / "evals.jsonl", "a") as file:
        file.write('{"step": 500, "tokens": 2048000, "loss": NaN, "eval_tokens": 100096}\n')
    rows = [sweep_row(relative(made)) for made in (first, second)]
    assert best_row(rows) is rows[1]
    assert "nan" in sweep_page(rows, Terminal())


@pytest.mark.parametrize("changed", ["data", "seq_len", "eval_tokens"])
def test_losses_on_different_tokens_have_no_best(new_run: NEW_RUN, changed: str, golden: Golden) -> None:
    first, second = sweep(new_run, 1.2, 1.9)
    if changed == "data":
        first.run(data=relative(first).run["data"] | {"fingerprint": "other"})
    elif changed == "seq_len":
        first.config(seq_len=256)
    else:
        text = (first.path / "evals.jsonl").read_text()
        (first.path / "evals.jsonl").write_text(text.replace("100096", "200192"))
    page = sweep_page([sweep_row(relative(made)) for made in (first, second)], Terminal())
    golden.text(page)
    assert "★" not in page


def test_best_of_different_budgets_is_named_with_them(new_run: NEW_RUN, golden: Golden) -> None:
    made = sweep(new_run, 1.2, 1.9)
    equal = sweep_page([sweep_row(relative(one)) for one in made], Terminal())
    golden.text(equal)
    (made[1].path / "metrics.csv").unlink()
    made[1].losses(250, floor=1.9)
    page = " ".join(sweep_page([sweep_row(relative(one)) for one in made], Terminal()).split())
    golden.text(page)


def test_every_command_that_is_suggested_can_be_typed(
    done_run: Any, diverged_run: Any, new_run: NEW_RUN
) -> None:
    largest, elsewhere = new_run("512d"), new_run("text")
    for made, model, dataset in ((largest, "512d", None), (elsewhere, "96d", "my text.txt")):
        made.config()
        settings = (made.path / "config.yaml").read_text().replace("name: 32d", f"name: {model}")
        settings = settings.replace("d_model: 32", f"d_model: {model[:-1]}")
        if dataset:
            settings = settings.replace("name: stdlib", "name: text").replace(
                "path: null", f"path: {dataset}", 1
            )
        (made.path / "config.yaml").write_text(settings)
        made.status()
    suggested = []
    for made in (done_run, diverged_run, largest, elsewhere):
        run = relative(made)
        suggested += [*after_run(run, outcome_of(run)), *after_sweep(run, 2), *after_sweep(run, 0)]
    typed = {command for command, _ in suggested if command.startswith("python experiments.py")}
    assert len(typed) >= 12
    composer = kept_composer()
    for command in typed:
        check_command(command, composer)


def test_suggestions_keep_what_the_run_was_told(new_run: NEW_RUN) -> None:
    made = new_run()
    made.config(lr=0.0123, max_tokens=200_000, effective_batch=32, compile=True, micro_batch=4)
    made.status()
    _, larger, rates = [command for command, _ in after_run(relative(made), outcome_of(relative(made)))]
    told = "optimizer.lr=0.0123 training.max_tokens=200000 training.micro_batch=4 training.compile=true"
    assert set(larger.split()) == {"python", "experiments.py", "model=64d", *told.split()}
    assert set(larger.split()) - set(rates.split()) == {"model=64d", "optimizer.lr=0.0123"}
    again, *_ = [command for command, _ in after_sweep(relative(made), 0)]
    assert set(again.split()) - set(larger.split()) == {"-m", "model=32d", "seed=1,2"}


def test_suggestions_name_the_data_and_the_tokenizer(new_run: NEW_RUN) -> None:
    made = new_run()
    made.config()
    settings = (made.path / "config.yaml").read_text()
    settings = settings.replace("name: stdlib", "name: text").replace("path: null", "path: my.txt", 1)
    (made.path / "config.yaml").write_text(settings)
    made.status()
    larger, _ = after_run(relative(made), outcome_of(relative(made)))[1]
    assert {"dataset=text", "dataset.path=my.txt", "tokenizer=bytes"} <= set(larger.split())


def test_suggestions_leave_out_what_was_only_filled_in(new_run: NEW_RUN) -> None:
    made = new_run()
    made.config(max_tokens=2_002_944, effective_batch=32)
    made.run()
    made.status()
    command = after_run(relative(made), outcome_of(relative(made)))[1][0]
    assert command.split() == ["python", "experiments.py", "model=64d"]


def test_a_sweep_of_which_all_that_failed_diverged_is_not_to_be_typed_again(
    new_run: NEW_RUN, diverged_run: Any, golden: Golden
) -> None:
    rows = [sweep_row(relative(made)) for made in (*sweep(new_run, 1.9), diverged_run)]
    page = sweep_page(rows, Terminal())
    golden.text(page)


def check_command(command: str, composer: Composer) -> None:
    """Composes and checks as the entry does; raises UserError."""
    import shlex

    arguments = read_arguments(shlex.split(command)[2:])
    if not arguments.help:
        assert (arguments.config_dir, arguments.config_name) == (composer.config_dir, composer.config_name)
        request = read_request(arguments.overrides, composer, multirun=arguments.multirun)
        assert request.runs
