"""Which inputs each task takes, and that all tasks of a set follow one plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.pretokenizer.distributed.task_plan import (
    PLAN,
    SetTask,
    agree,
    assign,
    inputs_of,
    make_plan,
    missing_tasks,
    named_task,
    parse_task,
    read_plan,
)
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, as_one, open_inputs
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from tests.golden_text import Golden

OPTIONS = Options(shard_tokens=40, val_fraction=0.3)


@given(sizes=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=60), data=st.data())
def test_each_input_once_in_order_and_balanced(sizes: list[int], data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, len(sizes)))
    found = assign(sizes, tasks)
    assert [place for part in found for place in part] == list(range(len(sizes)))
    assert all(len(part) >= 1 for part in found)
    loads = [sum(sizes[place] for place in part) for part in found]
    assert max(loads) <= sum(sizes) / tasks + max(sizes)


@given(count=st.integers(1, 500), data=st.data())
def test_inputs_of_one_size_are_spread_evenly(count: int, data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, count))
    counts = [len(part) for part in assign([1000] * count, tasks)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("given_", ["3", "0/0", "-1/3", "3/3", "a/b"])
def test_no_task(given_: str, golden: Golden) -> None:
    with golden.refused("task-invalid"):
        parse_task(given_)


def test_a_task_is_found_by_its_folder() -> None:
    assert parse_task(" 3/16 ") == SetTask(3, 16) == named_task("00003-of-00016")
    assert str(SetTask(3, 16)) == "3/16"


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} water rose\n" * 40)
    return sorted(tmp_path.glob("*.txt"))


def opened(*texts: Path, **options: Any) -> Inputs:
    found = open_inputs([str(path) for path in texts], InputOptions(**options))
    return found if isinstance(found, Inputs) else Inputs([found])


def plan(whole: Inputs, tasks: int = 2, output: Path = Path("mix"), **options: Any) -> dict[str, Any]:
    return make_plan(whole, BytesTokenizer(), output, Options(**{**vars(OPTIONS), **options}), tasks)


def test_a_task_gets_its_inputs(texts: list[Path]) -> None:
    whole = opened(*texts)
    parts = [inputs_of(whole, plan(whole), SetTask(number, 2)).parts for number in range(2)]
    assert [len(part) for part in parts] == [2, 1]
    assert [*parts[0], *parts[1]] == list(whole.parts)


def test_the_same_command_agrees_and_bad_lines_are_not_compared(texts: list[Path], tmp_path: Path) -> None:
    files, first = SetFiles(tmp_path / "mix"), plan(opened(*texts))
    assert read_plan(files) is None
    agree(files, first)
    agree(files, plan(opened(*texts)) | {"skip_bad": 7})
    assert read_plan(files) == first
    assert [path.name for path in files.tasks.iterdir()] == [PLAN]
    assert missing_tasks(files, 2) == [SetTask(0, 2), SetTask(1, 2)]


@pytest.mark.parametrize(
    "change", ["tasks", "length", "val", "errors", "missing", "order", "changed", "version"]
)
def test_another_command_is_refused(change: str, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
    files = SetFiles(tmp_path / "mix")
    agree(files, plan(opened(*texts)))
    other = {
        "tasks": lambda: plan(opened(*texts), 3),
        "length": lambda: plan(opened(*texts), shard_tokens=50),
        "val": lambda: plan(opened(*texts), val_fraction=None),
        "errors": lambda: plan(opened(*texts, errors="replace")),
        "missing": lambda: plan(opened(*texts[:2])),
        "order": lambda: plan(opened(*texts[::-1])),
        "changed": lambda: [texts[1].write_text("other"), plan(opened(*texts))][1],
        "version": lambda: plan(opened(*texts)) | {"writer_version": "0"},
    }[change]()
    with golden.refused("tasks-differ", numbers=False):
        agree(files, other)


def test_tasks_of_an_earlier_version_are_refused(texts: list[Path], tmp_path: Path, golden: Golden) -> None:
    files = SetFiles(tmp_path / "mix")
    for name in ("00001-of-00003", ".00001-of-00003.partial"):
        (files.tasks / name).mkdir(parents=True)
        with golden.refused("tasks-of-earlier-version", name=name):
            agree(files, plan(opened(*texts)))
        (files.tasks / name).rmdir()
    (files.tasks / PLAN).write_text("{")
    with golden.refused("task-plan-damaged"):
        read_plan(files)


def test_sets_that_tasks_cannot_make(texts: list[Path], golden: Golden) -> None:
    with golden.refused("task-with-limit"):
        plan(opened(*texts, max_tokens=5))
    with golden.refused("task-needs-shards"):
        plan(opened(*texts), shard_tokens=None)
    with golden.refused("task-and-append"):
        plan(opened(*texts), append=True)
    with golden.refused("more-tasks-than-inputs", name="three", numbers=False):
        plan(opened(*texts), 4)
    with golden.refused("more-tasks-than-inputs", name="one", numbers=False):
        plan(opened(texts[0]), 2)
    once = as_one([TextFile(path) for path in texts], InputOptions(dedup="lines"))
    assert isinstance(once, Inputs)
    with golden.refused("task-with-dedup"):
        plan(once)
