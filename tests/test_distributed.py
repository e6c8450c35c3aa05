"""One run on 1, 2 and 3 processes over gloo: the same batches, losses and checkpoints, and honest ends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ranked import RankProcesses
from tiny_run import (
    assert_same_numbers,
    column,
    copy_of,
    make_run,
    mixed_config,
    run_here,
    tiny_config,
    write_text,
)

from conf import Config
from conf.between_keys.optimizer_rules import SETTINGS_OF
from conf.schema import Schedule
from tests.golden_text import Golden
from tests.training.test_optimizers import option
from training.attempt.run_files import read_run, read_status

pytestmark = pytest.mark.slow
BATCH = {"effective_batch": 12, "micro_batch": 2, "max_steps": 30, "evals": 3}
"""A step divides over 1, 2 and 3 ranks, which accumulate 6, 3 and 2 micro-batches."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankProcesses]:
    processes = RankProcesses()
    yield processes
    processes.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on one rank."""
    folder = make_run(config_in(tmp_path_factory.mktemp("alone")))
    assert run_here(folder, "--quiet").returncode == 0
    return folder


def config_in(folder: Path, **training: Any) -> Config:
    return tiny_config(folder, **(BATCH | training))


def again(alone: Path, tmp_path: Path, **training: Any) -> Path:
    """The same run elsewhere."""
    folder = copy_of(config_in(alone.parents[2], **training), tmp_path / "runs")
    assert folder.name == alone.name
    return folder


def state_of_checkpoint(folder: Path) -> dict[str, Any]:
    newest = max((folder / "checkpoints").glob("step-*"))
    state: dict[str, Any] = json.loads((newest / "state.json").read_text())
    return state


@pytest.mark.parametrize(("count", "parallel"), [(2, "ddp"), (3, "fsdp")])
def test_losses_are_those_of_one_rank(
    ranks: RankProcesses, alone: Path, tmp_path: Path, count: int, parallel: str
) -> None:
    folder = again(alone, tmp_path, parallel=parallel)
    assert ranks.run(folder, count) == [0] * count
    assert_same_numbers(folder, alone)
    run = read_run(folder)
    assert (run["ranks"], run["accumulation"]) == (count, 6 // count)
    assert run["attempts"][0]["how"]["ranks"] == count
    assert run["identity"] == read_run(alone)["identity"]
    assert state_of_checkpoint(folder)["data"] == state_of_checkpoint(alone)["data"]
    assert {path.name for path in folder.glob("*rank1*")} == {"log.rank1.txt", "memory.rank1.jsonl", "rank1"}
    records = (folder / "memory.rank1.jsonl").read_text().splitlines()
    assert {json.loads(line)["rank"] for line in records} == {1}


def test_fsdp_in_bf16(ranks: RankProcesses, tmp_path: Path) -> None:
    """Losses as documented; a checkpoint and its resume on one rank keep weights and moments in fp32."""
    config = config_in(tmp_path, max_steps=20, precision="bf16", parallel="fsdp")
    folders = [copy_of(config, tmp_path / count) for count in ("one", "two")]
    assert run_here(folders[0], "--quiet").returncode == 0
    stop = {"rank": 1, "step": 9, "what": "term"}
    assert ranks.run(folders[1], 2, stop) == [1, 1]
    assert run_here(folders[1], "--quiet").returncode == 0
    for name in ("train_loss", "val_loss"):
        assert column(folders[1], name) == pytest.approx(column(folders[0], name), rel=2e-3), name


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        *((name, "fsdp") for name in (*sorted(set(SETTINGS_OF) - {"adamw"}), "ema")),
        *((name, "ddp") for name in ("adafactor", "muon", "schedule_free")),
    ],
)
def test_other_optimizers(ranks: RankProcesses, tmp_path: Path, name: str, parallel: str) -> None:
    """Or it is refused: Adafactor looks at whole rows and columns, where fsdp has parts of them.

    With ddp every rank takes the whole step: those that look at more than an element there are enough.
    """
    config = config_in(tmp_path, max_steps=6, parallel=parallel, **({"ema": 0.9} if name == "ema" else {}))
    if name != "ema":
        config = dataclasses.replace(config, optimizer=option(name))
    if name == "schedule_free":
        config = dataclasses.replace(config, schedule=Schedule("stable"))
    folders = [copy_of(config, tmp_path / count) for count in ("one", "two")]
    assert run_here(folders[0], "--quiet").returncode == 0
    codes = ranks.run(folders[1], 2)
    if parallel == "fsdp" and name == "adafactor":
        assert codes[0] == 2
        assert "training.parallel=ddp" in read_status(folders[1])["reason"]
        return
    assert codes == [0, 0]
    if name == "muon" and parallel == "fsdp":  # its iteration in bf16 sums in another order
        losses = [column(folder, "val_loss") for folder in folders]
        assert losses[1] == pytest.approx(losses[0], rel=2e-3)
        return
    assert_same_numbers(folders[1], folders[0])


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_go_back_from_a_spike_together(ranks: RankProcesses, tmp_path: Path, parallel: str) -> None:
    """The noise of a batch is one, to a guard that knows four steps."""
    guard = {"on_spike": "rollback", "rollback_every": 5, "spike_window": 4, "spike_threshold": 4.0}
    config = config_in(tmp_path, parallel=parallel, **(guard | {"max_steps": 24}))
    folders = [copy_of(config, tmp_path / count) for count in ("one", "two")]
    assert run_here(folders[0], "--quiet").returncode == 0
    assert ranks.run(folders[1], 2) == [0, 0]
    assert_same_numbers(folders[1], folders[0])
    lines = [(folder / "rollbacks.jsonl").read_text().splitlines() for folder in folders]
    undone = [[json.loads(line)["undone"] for line in of_one] for of_one in lines]
    assert undone[1] == undone[0] == [[11, 14]]
    assert state_of_checkpoint(folders[1])["data"] == state_of_checkpoint(folders[0])["data"]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_goes_on_with_another_number_of_ranks(
    ranks: RankProcesses, alone: Path, tmp_path: Path, parallel: str
) -> None:
    folder, reached = again(alone, tmp_path, parallel=parallel), [0]
    for count, step in ((2, 8), (1, 7), (3, 6)):
        stop = {"rank": count - 1, "step": step, "what": "term"}
        assert ranks.run(folder, count, stop) == [1] * count
        assert "SIGTERM" in read_status(folder)["reason"]
        asked_at = reached[-1] + step
        reached.append(state_of_checkpoint(folder)["step"])
        # Several ranks agree at the next checkpoint at the latest, of which there is one every 7 steps.
        assert asked_at <= reached[-1] <= (asked_at if count == 1 else asked_at + -asked_at % 7)
    assert [a["how"]["ranks"] for a in read_run(folder)["attempts"]] == [2, 1, 3]
    assert ranks.run(folder, 2) == [0, 0]
    resumed = [a["resumed_from_step"] for a in read_run(folder)["attempts"]]
    assert resumed == reached
    assert_same_numbers(folder, alone)


@pytest.mark.parametrize(
    ("dataset", "training"),
    [
        ({"documents": "masked", "document_separator": "--"}, {}),
        ({"windows": "shifted"}, {}),
        ({"windows": "streams"}, {}),
    ],
    ids=["masked documents", "shifted windows", "streams"],
)
def test_other_windows(
    ranks: RankProcesses, tmp_path: Path, dataset: dict[str, Any], training: dict[str, Any]
) -> None:
    lines = write_text(tmp_path / "tiny.txt").read_text().splitlines()
    # Documents of a few words and of many, so that ranks have different numbers of labels.
    parts = [line[: 9 * (number % 5)] + "\n--" * (number % 3 > 0) for number, line in enumerate(lines * 2)]
    (tmp_path / "tiny.txt").write_text("\n".join(parts) + "\n")
    config = config_in(tmp_path, max_steps=8, **training)
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, **dataset))
    folders = [copy_of(config, tmp_path / name) for name in ("one", "three")]
    assert run_here(folders[0], "--quiet").returncode == 0
    assert ranks.run(folders[1], 3) == [0, 0, 0]
    assert_same_numbers(folders[1], folders[0])


def test_a_mixture(ranks: RankProcesses, tmp_path: Path) -> None:
    config = mixed_config(tmp_path, **(BATCH | {"max_steps": 8}))
    folders = [copy_of(config, tmp_path / name) for name in ("one", "two")]
    assert run_here(folders[0], "--quiet").returncode == 0
    assert ranks.run(folders[1], 2) == [0, 0]
    assert_same_numbers(folders[1], folders[0])
    one, two = ((folder / "sources.csv").read_text().splitlines()[1:] for folder in folders)
    for first, second in zip(one, two, strict=True):
        assert first.split(",")[:3] == second.split(",")[:3]
        assert float(first.split(",")[3]) == pytest.approx(float(second.split(",")[3]), rel=2e-5)


@pytest.mark.parametrize("failing", [0, 1])
def test_the_first_failing_rank_is_named(
    ranks: RankProcesses, alone: Path, tmp_path: Path, failing: int
) -> None:
    folder = again(alone, tmp_path)
    assert ranks.run(folder, 3, {"rank": failing, "step": 9, "what": "raise"}) == [1, 1, 1]
    told = "ValueError: something is wrong with this rank"
    own_log = folder / ("log.txt" if failing == 0 else f"log.rank{failing}.txt")
    assert "Traceback" in own_log.read_text()
    assert told in own_log.read_text()
    status = read_status(folder)
    assert status["state"] == "failed"
    assert told in status["reason"]
    if failing:
        assert status["reason"].startswith(f"rank {failing} (")
        assert f"log.rank{failing}.txt" in status["reason"]
    assert f"rank {failing} (" in (folder / "log.rank2.txt").read_text()
    assert not (folder / "run.lock").exists()
    assert state_of_checkpoint(folder)["step"] == 7
    assert ranks.run(folder, 2) == [0, 0]
    assert_same_numbers(folder, alone)


@pytest.mark.parametrize("killed", [0, 2])
def test_a_killed_rank_is_named_and_the_others_end(
    ranks: RankProcesses, alone: Path, tmp_path: Path, killed: int
) -> None:
    folder = again(alone, tmp_path)
    codes = ranks.run(folder, 3, {"rank": killed, "step": 9, "what": "kill"})
    assert codes == [-9 if rank == killed else 1 for rank in range(3)]
    others = [
        folder / ("log.txt" if rank == 0 else f"log.rank{rank}.txt") for rank in range(3) if rank != killed
    ]
    for log in others:
        assert f"rank {killed} (" in log.read_text()
    if killed:
        assert read_status(folder)["state"] == "failed"
        assert read_status(folder)["reason"].startswith(f"rank {killed} (")
    assert ranks.run(folder, 3) == [0, 0, 0]
    assert_same_numbers(folder, alone)


def test_a_step_that_does_not_divide_is_refused_on_all_ranks(
    ranks: RankProcesses, tmp_path: Path, golden: Golden
) -> None:
    folder = make_run(config_in(tmp_path, effective_batch=4))
    assert ranks.run(folder, 3)[0] == 2
    reason = read_status(folder)["reason"]
    golden.text(reason)


def test_ranks_that_do_not_come_are_named(ranks: RankProcesses, tmp_path: Path, golden: Golden) -> None:
    folder = make_run(config_in(tmp_path))
    variables = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "HIGHWATER_RANKS_TIMEOUT_S": "1"}
    assert ranks.run(folder, 2, **variables) == [1, 1]
    reason = read_status(folder)["reason"]
    assert "127.0.0.1:" in reason
    golden.text(reason, numbers=False)
