"""What lines of a log say of an end: of programs, kernels, Slurm, other managers; and quotations of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_builder import explained, killed, ours, outcome, ramp, record, typed

from memory.explain import Explanation, explain
from memory.record.evidence import Evidence

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    main()\n'
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
BUG = TRACEBACK + "KeyError: 'labels'\n"
KERNEL = "Out of memory: Killed process {pid} ({name}) total-vm:9012kB, anon-rss:8012kB"
IN_CGROUP = KERNEL.replace("Out of memory", "Memory cgroup out of memory")
GIB = 1 << 30


_COLUMN = 45
"""Where the line begins in a row of log_lines.txt."""


def _read_lines() -> dict[str, list[tuple[str, str, str, str]]]:
    """By section: verdict, cause, confidence, line."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    for row in Path(__file__).with_name("log_lines.txt").read_text().splitlines():
        if row.startswith("["):
            rows = found.setdefault(row.strip("[]"), [])
        elif row and not row.startswith("#"):
            verdict, cause, confidence, _ = row.split(maxsplit=3)
            line = row[_COLUMN:].replace("\\n", "\n").replace("\\t", "\t").replace("{traceback}", TRACEBACK)
            rows.append((verdict, cause, confidence, line))
    return found


LINES = _read_lines()


def _gpu(cause: str) -> str:
    """The first message of the table with that cause."""
    return next(line for _, found, _, line in LINES["gpu"] if found == cause)


def failed(folder: Path, log: str, **more: Any) -> Explanation:
    """Of a run that was watched and ended with 1, far from its limit."""
    return explained(folder, outcome=outcome(exit_code=1, **more), samples=ramp(10, 20), log=log)


@pytest.mark.parametrize(("verdict", "cause", "confidence", "line"), LINES["alone"])
def test_line_of_log_alone(tmp_path: Path, verdict: str, cause: str, confidence: str, line: str) -> None:
    found = explained(tmp_path / "log", log=f"epoch 1\n{line}\n")
    assert (found.verdict, found.cause, found.confidence) == (verdict, cause, confidence)
    well = explained(tmp_path / "well", outcome=outcome(), samples=ramp(10, 20), log=f"{line}\n")
    assert well.verdict == "healthy", "no count rose, and it ended with 0"


@pytest.mark.parametrize(
    "label",
    ["", "[rank0]: ", "[default3]:", " 12: ", "[1,0]<stderr>:", "2026-11-23T07:00:00.123Z "],
)
@pytest.mark.parametrize(
    ("error", "verdict"),
    [("MemoryError", "memory_error"), ("\x1b[1;35mMemoryError\x1b[0m", "memory_error"), (FULL, "oom_gpu")],
)
def test_labels_and_colours_before_lines(tmp_path: Path, label: str, error: str, verdict: str) -> None:
    """torch.distributed, torchrun, srun --label, mpirun, kubectl logs --timestamps."""
    lines = f"step 1 loss 3.2\n{TRACEBACK}{error}".splitlines()
    log = "".join(f"{label}{line}\n" for line in lines)
    assert explained(tmp_path / "log", log=log).verdict == verdict
    found = failed(tmp_path / "run", log)
    assert (found.verdict, found.confidence) == (verdict, "certain")


@pytest.mark.parametrize(("_", "cause", "confidence", "line"), LINES["gpu"])
def test_gpu_message_of_torch(tmp_path: Path, _: str, cause: str, confidence: str, line: str) -> None:
    records = [record("begin", "first_step", 50, 300)]
    parts = {"outcome": outcome(exit_code=1), "records": records, "run": ours()}
    found = explained(tmp_path, log=f"{TRACEBACK}{line}\n", **parts)
    assert (found.verdict, found.cause, found.confidence) == ("oom_gpu", cause, confidence)
    assert "training.micro_batch=8" in typed(found)
    assert not [words for words in typed(found) if words.startswith("--mem")], "that is of the host"
    first = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert (typed(found)[0] == first) == (cause == "fragmentation")


@pytest.mark.parametrize(
    ("gpu", "cause"),
    [
        ({"allocated_bytes": 10 * GIB, "reserved_bytes": 11 * GIB, "free_bytes": 2 * GIB}, "neighbours"),
        ({"allocated_bytes": 70 * GIB, "reserved_bytes": 77 * GIB, "free_bytes": 0}, "growth"),
        ({"allocated_bytes": 70 * GIB, "reserved_bytes": 77 * GIB}, "growth"),
        ({"allocated_bytes": "?", "reserved_bytes": None, "free_bytes": []}, "unknown"),
    ],
)
def test_message_without_numbers_is_judged_by_recorded_device(
    tmp_path: Path, gpu: dict[str, Any], cause: str
) -> None:
    ended = record("end", "train", 60, 300)
    ended["snapshot"]["gpu"] = {"total_bytes": 80 * GIB, **gpu}
    log = f"{TRACEBACK}{_gpu('unknown')}\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log, records=[ended], run=ours())
    assert (found.verdict, found.cause) == ("oom_gpu", cause)


@pytest.mark.parametrize(
    ("state", "reason", "cause"),
    [("failed", _gpu("size").replace("torch.", ""), "size"),
     ("oom", "RuntimeError: CUDA out of memory (CUBLAS_STATUS_ALLOC_FAILED) in step 3: ...", "unknown")],
)  # fmt: skip
def test_run_that_says_itself_that_gpu_is_full(tmp_path: Path, state: str, reason: str, cause: str) -> None:
    status = {"state": state, "attempt": 1, "reason": reason}
    found = explained(tmp_path, status=status, run=ours())
    assert (found.verdict, found.cause) == ("oom_gpu", cause)


@pytest.mark.parametrize(("verdict", "_", "confidence", "error"), LINES["last exception"])
def test_last_exception_of_failed_run(
    tmp_path: Path, verdict: str, _: str, confidence: str, error: str
) -> None:
    found = failed(tmp_path, f"step 1\n{TRACEBACK}{error}\n")
    assert (found.verdict, found.confidence) == (verdict, confidence)
    assert not [words for words in typed(found) if words.startswith("--mem")], "no limit of a cgroup refuses"


@pytest.mark.parametrize(
    "caught", [FULL, "MemoryError", "OSError: [Errno 28] No space left on device: 'cache'", "Bus error"]
)
@pytest.mark.parametrize("before", ["WARNING: ", TRACEBACK])
def test_error_caught_before_bug(tmp_path: Path, caught: str, before: str) -> None:
    log = f"{before}{caught}\ngoes on without\nstep 12\n{BUG}"
    assert failed(tmp_path / "run", log).verdict == "failed"
    assert explained(tmp_path / "log", log=log).verdict == "failed"
    status = {"state": "failed", "attempt": 1, "reason": "KeyError: 'labels'"}
    said = explained(tmp_path / "said", outcome=outcome(exit_code=1), status=status, log=log)
    assert said.verdict == "failed"


@pytest.mark.parametrize(
    "after",
    [
        "\nThe above exception was the direct cause of the following exception:\n\n"
        f"{TRACEBACK}RuntimeError: step 3\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n" + BUG,
        "Exception ignored in: <function f>\n" + BUG,
        "srun: error: n1: task 0: Exited with exit code 1\n",
        f"{TRACEBACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n",
        f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error: remote process exited\n",
        "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    ],
)
def test_what_follows_last_error(tmp_path: Path, after: str) -> None:
    found = failed(tmp_path, f"{TRACEBACK}{FULL}\n{after}")
    assert (found.verdict, found.confidence) == ("oom_gpu", "certain")


def test_exception_group(tmp_path: Path) -> None:
    log = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 3, in <module>\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
        '    |   File "a.py", line 2, in f\n    | MemoryError\n    +------------------------------------\n'
    )
    assert explained(tmp_path, log=log).verdict == "memory_error"


def test_exception_of_python_ends_by_no_segmentation_fault(tmp_path: Path) -> None:
    found = explained(tmp_path / "a", outcome=killed("SIGSEGV"), samples=ramp(10, 20), log="MemoryError\n")
    assert found.verdict == "failed"
    line = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    found = explained(tmp_path / "b", outcome=killed("SIGABRT"), samples=ramp(10, 20), log=line)
    assert found.verdict == "memory_error"


def test_deaths_of_others_in_kernels_log(tmp_path: Path) -> None:
    explained(tmp_path, outcome=outcome(), samples=ramp(100, 200))
    lines = "\n".join(line.format(pid=pid, name="python") for pid in (11, 12) for line in (KERNEL, IN_CGROUP))
    assert explain(Evidence(tmp_path, added_log=lines, added_log_name="dmesg")).verdict == "healthy"
