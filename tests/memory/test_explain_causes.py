"""What filled the memory, by evidence that no recorded death left (test_recorded_deaths.py)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_builder import (
    GB,
    LIMIT,
    MAIN,
    MB,
    explained,
    killed,
    oom,
    ours,
    outcome,
    process,
    ramp,
    record,
    sample,
    typed,
)

from memory.samples import ProcessSample, Sample

HEAD = "== 2026-01-01 00:00:00 unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB =="


def script(folder: Path, text: str) -> list[str]:
    """The command that runs it."""
    folder.mkdir(exist_ok=True)
    path = folder / "script.py"
    path.write_text(text)
    os.utime(path, (1, 1))
    return ["python", str(path)]


@pytest.mark.parametrize(
    ("samples", "verdict", "cause"),
    [
        pytest.param([sample(at, 800, swap_bytes=at * 40 * MB) for at in range(20)], "healthy", "thrash",
                     id="swap"),
        pytest.param([sample(at, 30, usage_bytes=LIMIT - MB, cache_bytes=950 * MB, major_faults=400 * at,
                             refaults=10 * at) for at in range(30)], "healthy", "cache", id="read once"),
        pytest.param([sample(at, 40, usage_bytes=None, tree_rss_bytes=3 * GB, tree_file_bytes=2 * GB)
                      for at in range(20)], "healthy", "cache", id="rss above the limit"),
        pytest.param([sample(at, 970, usage_bytes=LIMIT - MB, cache_bytes=50 * MB, refaults=100_000 * at)
                      for at in range(30)], "healthy", "thrash", id="no room for code"),
        pytest.param([sample(at, 100 + 30 * at, kernel_bytes=30 * at * MB, page_tables_bytes=2 * MB,
                             anon_bytes=100 * MB, tree_anon_bytes=100 * MB) for at in range(31)],
                     "oom_cgroup", "growth", id="pipes, page tables known"),
        pytest.param([sample(at, 100 + 30 * at, kernel_bytes=30 * at * MB, anon_bytes=100 * MB,
                             tree_anon_bytes=100 * MB) for at in range(31)],
                     "oom_cgroup", "page_tables", id="pipes, page tables unknown"),
    ],
)  # fmt: skip
def test_cause_by_samples(tmp_path: Path, samples: list[Sample], verdict: str, cause: str) -> None:
    peak = {"peak_unreclaimable_bytes": max(one.unreclaimable_bytes or 0 for one in samples)}
    ended = killed(**oom()) if verdict == "oom_cgroup" else outcome(**peak)
    found = explained(tmp_path, outcome=ended, samples=samples)
    assert (found.verdict, found.cause) == (verdict, cause)


def test_mapped_pages_that_become_anon(tmp_path: Path) -> None:
    samples = [
        sample(at, 100 + 30 * at, usage_bytes=750 * MB, tree_file_bytes=max(0, 650 - 30 * at) * MB)
        for at in range(21)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert "private_writes" in [finding.cause for finding in found.findings]


def test_copy_on_write(tmp_path: Path) -> None:
    """Four workers share 200 MB with the main process; each process stays as it was, the cgroup does not."""
    tree = tuple(process(MAIN + number, 200) for number in range(5))
    common = {"tree_anon_bytes": 1000 * MB, "processes": 5, "tree": tree}
    found = explained(
        tmp_path / "copied",
        outcome=killed(**oom()),
        samples=[sample(at, 210 + 26 * at, **common) for at in range(31)],
    )
    assert found.cause == "copy_on_write"
    assert "DataLoader(num_workers=0)" in typed(found)
    shared = [sample(at, 210 + at / 4, **common) for at in range(31)]
    assert explained(tmp_path / "shared", outcome=outcome(), samples=shared).cause == "none"


def test_sampler_list_by_stack(tmp_path: Path) -> None:
    file = "/venv/lib/python3.11/site-packages/torch/utils/data/sampler.py"
    stacks = f'{HEAD}\nCurrent thread 0x7f (most recent call first):\n  File "{file}", line 170 in __iter__\n'
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert found.cause == "sampler"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("x = np.load('tokens.npy').astype(int)", "whole_file_load"),
        ("x = np.concatenate([x, new])", "growth"),
    ],
)
def test_cause_by_line_of_stack(tmp_path: Path, line: str, cause: str) -> None:
    source = tmp_path / "load.py"
    source.write_text(f"import numpy as np\n{line}\n")
    stacks = f'{HEAD}\nCurrent thread 0x7f (most recent call first):\n  File "{source}", line 2 in <module>\n'
    found = explained(tmp_path / "run", outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert found.cause == cause


@pytest.mark.parametrize(("asked", "frame"), [("Thread", "model.py:2"), ("Current thread", "helper.py:1")])
def test_stack_is_of_thread_that_got_signal_or_main_one(tmp_path: Path, asked: str, frame: str) -> None:
    """A thread of C++ may get it; faulthandler tells the main thread last. A small worker tells less."""
    stacks = (
        f'{HEAD}\n{asked} 0x1 (most recent call first):\n  File "/run/helper.py", line 1 in wait\n\n'
        'Thread 0x2 (most recent call first):\n  File "/run/model.py", line 2 in forward\n'
        f"{HEAD.replace('930', '20')}\n"
        'Current thread 0x3 (most recent call first):\n  File "/run/worker.py", line 3 in read\n'
    )
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert [line for line in found.evidence if frame in line]
    assert not [line for line in found.evidence if "worker.py" in line]


WITH_CACHE = [
    sample(at, 100 + 90 * at, cache_bytes=80 * at * MB, usage_bytes=min(1024, 100 + 170 * at) * MB)
    for at in range(11)
]


@pytest.mark.parametrize(
    ("text", "samples", "cause"),
    [
        ("data = open('a', 'rb').read()\n", WITH_CACHE, "whole_file_load"),
        ("import numpy as np\ndata = np.load('a.npy', mmap_mode='c')\n", WITH_CACHE, "private_writes"),
        ("a = np.memmap('a.bin', np.uint8, 'c')\nfor i in range(9): a[i:i+9]+=1\n", ramp(100, 1010),
         "private_writes"),
        ("a = np.memmap('a.bin', np.uint8, 'c')\nfor i in range(9): print(a[i] == 1)\n", ramp(100, 1010),
         "leak"),
    ],
)  # fmt: skip
def test_cause_by_script(tmp_path: Path, text: str, samples: list[Sample], cause: str) -> None:
    command = script(tmp_path, text)
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=samples)
    assert found.cause == cause
    (tmp_path / "script.py").touch()
    edited = explained(tmp_path / "edited", outcome=killed(command=command, **oom()), samples=samples)
    assert edited.cause in ("growth", "leak"), "it is another one by now"


@pytest.mark.parametrize("is_named", [True, False])
def test_file_larger_than_limit(tmp_path: Path, is_named: bool) -> None:
    """Read at once it is gone between two samples: what it is, the script and the file say."""
    path = tmp_path / "tokens.npy"
    with path.open("wb") as file:
        file.truncate(3 * GB)
    name = repr(str(path)) if is_named else "sys.argv[1]"
    seen = [*(sample(at, 30) for at in range(3)), sample(3.2, 700)]
    command = [*script(tmp_path, f"import sys\ndata = open({name}, 'rb').read()\n"), str(path)]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=seen)
    assert (found.cause, found.cause_confidence) == ("whole_file_load", "likely")
    assert "--mem=4G" in typed(found)
    mapped = script(tmp_path, f"import numpy as np\ndata = np.load({str(path)!r}, mmap_mode='r')\n")
    found = explained(tmp_path / "b", outcome=killed(command=mapped, **oom()), samples=seen)
    assert (found.cause, found.cause_confidence) != ("whole_file_load", "likely")


@pytest.mark.parametrize("factor", [1, 4])
def test_own_data_read_whole(tmp_path: Path, factor: int) -> None:
    """180 MB by run.json."""
    u = [100, 100, 100, 100 + 180 * factor, 100 + 180 * factor, 1020]
    samples = [sample(at, amount) for at, amount in enumerate(u[: 5 + factor // 4])]
    records = [record("begin", "open_dataset", 2, 100)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples, records=records, run=ours())
    assert "whole_file_load" in [finding.cause for finding in found.findings]


def test_leak_by_step(tmp_path: Path) -> None:
    records = [
        record(event, "train", step + late, 100 + 4 * step + 4 * bool(late), step=step)
        for step in range(1, 61)
        for event, late in (("begin", 0), ("end", 0.9))
    ]
    found = explained(tmp_path, outcome=outcome(), records=records, samples=ramp(100, 350, 60))
    assert (found.verdict, found.cause) == ("healthy", "leak")


@pytest.mark.parametrize(
    ("verdict", "mb_per_step", "cause"),
    [("leak", 1.0, "leak"), ("leak", 0.1, "growth"), ("levelling off", 1.0, "growth")],
)
def test_leak_that_run_found_itself(tmp_path: Path, verdict: str, mb_per_step: float, cause: str) -> None:
    """A small one fills no limit."""
    leak = {
        "verdict": verdict, "is_leak": verdict == "leak", "slope_bytes_per_step": int(mb_per_step * MB),
        "since_step": 154, "eta_steps": 80, "holder": "main",
    }  # fmt: skip
    last = record("end", "train", 55, 819, step=480) | {"leak": leak}
    records = [record("end", "first_step", 5, 306, step=0), record("begin", "train", 50, 813, step=480), last]
    samples = [sample(at, 819 if at > 20 else 300) for at in range(60)] + [sample(60, 900), sample(61, 1010)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples, records=records, run=ours())
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)
    assert (typed(found)[0] == "memory.attribute=true") == (cause == "leak")


@pytest.mark.parametrize("is_ours", [True, False])
def test_imports_are_no_leak(tmp_path: Path, is_ours: bool) -> None:
    """torch was read in at an even rate until the kill; run.json was not there yet."""
    if is_ours:
        (tmp_path / "config.yaml").touch()
    records = [record("begin", "start", 0.5, 30)]
    found = explained(tmp_path, outcome=killed(**oom()), records=records, samples=ramp(30, 1020, 30))
    assert found.cause == ("growth" if is_ours else "leak")


@pytest.mark.parametrize(
    ("name", "advised"), [("perl", "heaptrack COMMAND"), ("python3.12", "tracemalloc.take_snapshot()")]
)
def test_leak_of_another_language(tmp_path: Path, name: str, advised: str) -> None:
    samples = [
        replace(one, tree=(ProcessSample(MAIN, name, *([one.unreclaimable_bytes] * 4)),))
        for one in ramp(50, 1020, 60)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.cause, typed(found)[0]) == ("leak", advised)
