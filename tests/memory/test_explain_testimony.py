"""What a line of a log is worth: by whom it can be, and whether it tells of this run's end."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_builder import GB, LIMIT, MB, explained, killed, oom, outcome, process, ramp, sample

from memory.evidence import Evidence
from memory.explain import Explanation, explain

HOST = "Out of memory: Killed process {pid} ({name}) total-vm:9012kB, anon-rss:8012kB"
CGROUP = "Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:9012kB, anon-rss:8012kB"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0."
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n'
BUG = TRACEBACK + "KeyError: 'labels'\n"


def with_added(folder: Path, line: str, **parts: object) -> Explanation:
    """The line stands in a log that was handed in beside the run."""
    explained(folder, **parts)
    return explain(Evidence(folder, added_log=line, added_log_name="dmesg"))


def test_a_quotation_of_the_kernel_does_not_move_a_kill_to_the_host(tmp_path: Path) -> None:
    log = HOST.format(pid=4242, name="python")
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1015), log=log)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")


@pytest.mark.parametrize(
    "begin",
    [
        "", "[  812.1] ", "[Tue Nov 22 10:00:00 2026] ", "<3>[  812.1] ", "kern  :err   : [  812.1] ",
        "Nov  2 10:00:00 n1 kernel: [  812.1] ", "2026-11-22T10:00:00+00:00 n1 kernel: ",
    ],
)  # fmt: skip
def test_the_kernels_own_log_beside_a_run_in_a_container(tmp_path: Path, begin: str) -> None:
    """There the kernel says another pid than the supervisor, and the same name."""
    ended = killed(limit_at="host", limit_bytes=64 * GB, counters_before={}, counters_after={})
    parts = {"outcome": ended, "samples": ramp(100, 200, oom_kills=None)}
    found = with_added(tmp_path / "a", begin + HOST.format(pid=81234, name="python"), **parts)
    assert (found.verdict, found.confidence) == ("oom_host", "likely")
    found = with_added(tmp_path / "b", begin + HOST.format(pid=81234, name="java"), **parts)
    assert found.verdict == "killed_from_outside"


def test_deaths_of_others_in_the_machines_log(tmp_path: Path) -> None:
    lines = "\n".join(line.format(pid=pid, name="python") for pid in (11, 12) for line in (HOST, CGROUP))
    assert with_added(tmp_path, lines, outcome=outcome(), samples=ramp(100, 200)).verdict == "healthy"


@pytest.mark.parametrize(
    "begin",
    [
        "", "0: ", "[n1] ", "[2026-03-02T10:00:09.123] ", "[2026-03-02T10:00:09.123] [77.0] ",
        "2026-03-02 10:00:09,123 ", "n1: ",
    ],
)  # fmt: skip
def test_slurms_line_behind_labels(tmp_path: Path, begin: str) -> None:
    found = explained(tmp_path, log=begin + OOM.format(job=77))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")


def test_slurms_words_in_the_midst_of_a_line(tmp_path: Path) -> None:
    found = explained(tmp_path, log="sample 3.1: " + OOM.format(job=77))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "possible")


@pytest.mark.parametrize(("job", "verdict"), [("77", "oom_cgroup"), ("78", "killed_from_outside")])
def test_slurms_line_is_of_the_job_that_it_names(tmp_path: Path, job: str, verdict: str) -> None:
    ended = killed(environment={"SLURM_JOB_ID": job})
    found = explained(tmp_path, outcome=ended, samples=ramp(100, 200), log=OOM.format(job=77))
    assert found.verdict == verdict


def test_a_task_of_an_array_has_two_names(tmp_path: Path) -> None:
    named = {"SLURM_JOB_ID": "80", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"}
    for job in ("80", "77_3"):
        line = (
            f"slurmstepd: error: *** JOB {job} ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***"
        )
        found = explained(tmp_path / job, outcome=killed("SIGTERM", environment=named), log=line)
        assert found.verdict == "timeout"


def test_slurms_line_handed_in_beside_a_run_that_was_told_of_no_slurm(tmp_path: Path) -> None:
    """A container passed none of Slurm's variables on: the job's log is the user's word."""
    parts = {
        "outcome": killed(counters_before={}, counters_after={}),
        "samples": ramp(100, 200, oom_kills=None),
    }
    found = with_added(tmp_path / "a", OOM.format(job=77), **parts)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    found = explained(tmp_path / "b", log=OOM.format(job=77), **parts)
    assert found.verdict == "killed_from_outside"


@pytest.mark.parametrize(
    "caught", [FULL, "MemoryError", "OSError: [Errno 28] No space left on device: 'cache'", "Bus error"]
)
@pytest.mark.parametrize("how", ["a line", "a traceback"])
def test_an_error_that_was_caught_before_a_bug(tmp_path: Path, caught: str, how: str) -> None:
    before = f"WARNING: {caught}\n" if how == "a line" else TRACEBACK + caught + "\n"
    log = f"{before}goes on without\nstep 12\n{BUG}"
    found = explained(tmp_path / "a", outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert found.verdict == "failed"
    assert any("KeyError: 'labels'" in line for line in found.evidence)
    assert explained(tmp_path / "b", log=log).verdict == "failed"


@pytest.mark.parametrize(
    "after",
    [
        "",
        "\nThe above exception was the direct cause of the following exception:\n\n"
        + TRACEBACK
        + "RuntimeError: step 3\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n" + BUG,
        "Exception ignored in: <function f>\n" + BUG,
        "srun: error: n1: task 0: Exited with exit code 1\n",
        TRACEBACK + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n",
        TRACEBACK + "torch.distributed.DistBackendError: NCCL error: remote process exited\n",
    ],
)
def test_what_follows_the_error_of_the_end(tmp_path: Path, after: str) -> None:
    """A cause of the last exception, exit handlers, and what other processes raise because this one died."""
    log = TRACEBACK + FULL + "\n" + after
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert (found.verdict, found.confidence) == ("oom_gpu", "certain")


@pytest.mark.parametrize(
    "end",
    [
        "ValueError: sample 12 is no JSON: OSError: [Errno 12] Cannot allocate memory\n",
        "json.decoder.JSONDecodeError: CUDA out of memory\n",
        "RuntimeError: line 7 reads 'MemoryError'\n",
        '  File "a.py", line 9, in load\n    retry("Cannot allocate memory")\nRuntimeError: too many tries\n',
        "AssertionError: the log says:\nno space left on device: /dev/shm/a\n",
    ],
)
def test_a_quotation_in_the_last_traceback(tmp_path: Path, end: str) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + end)
    assert (found.verdict, found.confidence) == ("failed", "likely")


@pytest.mark.parametrize(
    ("end", "confidence"),
    [
        ("RuntimeError: preparing failed: OSError: [Errno 12] Cannot allocate memory\n", "likely"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory\n",
            "certain",
        ),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 16.0 GiB for an array\n", "certain"),
        ("OSError: [Errno 12] Cannot allocate memory\n", "certain"),
    ],
)
def test_the_words_of_the_exception_itself(tmp_path: Path, end: str, confidence: str) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + end)
    assert (found.verdict, found.confidence) == ("memory_error", confidence)


def test_the_runs_own_word_goes_before_what_it_caught(tmp_path: Path) -> None:
    status = {"state": "failed", "attempt": 1, "reason": "KeyError: 'labels'"}
    found = explained(
        tmp_path, outcome=outcome(exit_code=1), status=status, log=TRACEBACK + FULL + "\n" + BUG
    )
    assert found.verdict == "failed"


def test_no_exception_of_python_ends_by_a_segmentation_fault(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed("SIGSEGV"), samples=ramp(10, 20), log="MemoryError\nretry\n")
    assert found.verdict == "failed"
    line = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    found = explained(tmp_path, outcome=killed("SIGABRT"), samples=ramp(10, 20), log=line)
    assert found.verdict == "memory_error"


def test_shared_memory_that_the_main_process_keeps(tmp_path: Path) -> None:
    """Workers are there, and none of them has it mapped."""
    samples = [
        sample(
            at, 100 + 30 * at, shmem_bytes=30 * at * MB, anon_bytes=100 * MB, tree_anon_bytes=100 * MB,
            processes=3, tree=(process(100, 60, shmem_mb=30 * at), process(101, 20), process(102, 20)),
        )
        for at in range(31)
    ]  # fmt: skip
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "shmem")


def test_shared_memory_that_several_have_mapped_at_once(tmp_path: Path) -> None:
    samples = [
        sample(
            at, 100 + 30 * at, shmem_bytes=30 * at * MB, anon_bytes=100 * MB, tree_anon_bytes=100 * MB,
            processes=3, usage_bytes=(120 + 30 * at) * MB,
            tree=(process(100, 60), *(process(100 + n, 20, shmem_mb=28 * at) for n in (1, 2))),
        )
        for at in range(31)
    ]  # fmt: skip
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "shmem")


def test_a_kill_that_was_counted_met_the_limit_above(tmp_path: Path) -> None:
    """Also where the last sample was taken long before."""
    found = explained(
        tmp_path,
        outcome=killed(limit_at="/slurm", **oom() | {"peak_unreclaimable_bytes": LIMIT // 2}),
        samples=ramp(100, 512),
        ring_facts={"pid": 100, "limit_at": "/slurm"},
    )
    assert any("parent /slurm" in line for line in found.evidence)


def test_an_error_that_its_own_line_says_was_got_over(tmp_path: Path) -> None:
    log = "CUDA out of memory, reducing batch size to 8\nstep 12 loss 3.1\nstep 13 loss 3.0\n"
    found = explained(tmp_path, log=log)
    assert found.confidence == "possible"


def test_the_machines_log_alone_does_not_say_whose_process_it_was(tmp_path: Path) -> None:
    found = explained(tmp_path, log="[  812.1] " + HOST.format(pid=4242, name="java"))
    assert (found.verdict, found.confidence) == ("oom_host", "likely")
    assert "of this run" not in found.sentence


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("Memory cgroup out of memory: Killed process 4711 (python) total-vm:9kB", "oom_cgroup"),
        ("Out of memory: Killed process 4711 (python) total-vm:9kB", "oom_host"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
         "memory: you tried to allocate 4000000000000 bytes. Error code 12", "memory_error"),
        ("java.lang.OutOfMemoryError: Java heap space", "memory_error"),
        ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes", "oom_gpu"),
    ],
)  # fmt: skip
def test_each_line_of_a_log_ends_in_something_to_type(tmp_path: Path, line: str, verdict: str) -> None:
    found = explained(tmp_path, log=f"{line}\n")
    assert found.verdict == verdict
    assert [advice for advice in found.advice if advice.override]
