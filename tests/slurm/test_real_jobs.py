"""Ends of jobs on a real Slurm, all handed in at once: most of their time is waiting."""

from __future__ import annotations

import csv
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conf import Config
from conf.between_keys.logging_rules import is_missing
from slurm.launch.code_snapshot import take
from slurm.records.start_records import read_starts
from slurm.records.submissions import places, submissions
from tests.golden_text import Golden
from tests.local_slurm import SCRIPT, Cluster
from tests.slurm.real_ends import large_config, long_config, stop_until_its_signal
from tests.slurm.real_jobs import PATIENCE_S, Sent, send
from tests.tiny_run import copy_of, make_run, outcome, run_core, tiny_config

pytestmark = [pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def sent(
    request: pytest.FixtureRequest, slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Sent]]:
    """The jobs of all tests that were asked for, by the word of a test's name."""
    folder, where = tmp_path_factory.mktemp("jobs"), slurm_cluster
    made: dict[str, Callable[[], Sent]] = {
        "timeout": lambda: _until_its_time_is_up(where, long_config(folder)),
        "slots": lambda: _in_slots(where, folder),
        "plain": lambda: _plain(where, folder),
        "kept": lambda: _kept(where, folder),
        "series": lambda: send(where, _logged(folder, "csv", seed=11)),
        "events": lambda: send(where, _logged(folder, "tensorboard", seed=12)),
    }
    words = {word for item in request.session.items for word in item.name.split("_")}
    found = {name: make() for name, make in made.items() if name in words}
    yield found
    for one in found.values():
        where.say("scancel", one.job, check=False)


def _in_slots(where: Cluster, folder: Path) -> Sent:
    """Three runs in two slots, one of which needs more than its share of the memory."""
    large = make_run(large_config(folder, seed=5))
    small, last = (dataclasses.replace(tiny_config(folder), seed=seed) for seed in (6, 7))
    return send(where, small, "--mem=1100M", others=[large, make_run(last)], how="shared", slots=2)


def _logged(folder: Path, to: str, seed: int) -> Config:
    config = dataclasses.replace(tiny_config(folder), seed=seed)
    return dataclasses.replace(config, logging=dataclasses.replace(config.logging, to=to))


def _until_its_time_is_up(where: Cluster, config: Config) -> Sent:
    """However fast it trains: its first start that comes to a checkpoint stands still until the signal."""
    job = send(where, config, "--time=2", "--signal=USR2@30")
    stop_until_its_signal(job)
    return job


def _overrides(folder: Path, steps: int) -> list[str]:
    tiny_config(folder)  # writes the text
    return [
        "model.d_model=16", "model.n_layers=1", "model.n_heads=1", "dataset=text", "tokenizer=bytes",
        f"dataset.path={folder / 'tiny.txt'}", "dataset.repeat=true", f"training.max_steps={steps}",
        "training.seq_len=16", "training.effective_batch=4", "training.evals=1", "training.threads=1",
        "training.checkpoint_every=100000",
    ]  # fmt: skip


def _kept(where: Cluster, folder: Path) -> Sent:
    """The script that `python -m slurm script` makes, as it is."""
    own = folder / "kept"
    own.mkdir()
    asked = ["slurm=default", "slurm.mem=600MB", "slurm.time=10", "slurm.cpus_per_task=1"]
    made = subprocess.run(
        [sys.executable, "-m", "slurm", "script", *asked, *_overrides(folder, 3)],
        cwd=SCRIPT.parent.parent, env={**os.environ, **where.variables}, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    script, out = own / "job.sh", own / "job.out"
    script.write_text(made.stdout)
    job = where.say(
        "sbatch", "--parsable", f"--chdir={own}", f"--output={out}", str(script), *_overrides(folder, 3)
    )
    return Sent(where, own / "runs" / "not known yet", job, out)


def _plain(where: Cluster, folder: Path) -> Sent:
    """As a user types it inside of a task of an array, whose variables sbatch hands on; but for the place of
    the checkout, which is `checkout`, to be edited.
    """
    take(folder / "code").path.rename(folder / "checkout")
    overrides = [*_overrides(folder, 1_000_000), f"runs_dir={folder / 'plain'}"]
    out = folder / "plain.out"
    job = where.say(
        "sbatch", "--parsable", f"--output={out}", "--mem=600M", "--cpus-per-task=1", f"--chdir={folder}",
        f"--export=ALL,HIGHWATER_CODE={folder / 'checkout'},PYTHON={sys.executable},"
        "SLURM_ARRAY_JOB_ID=999999,SLURM_ARRAY_TASK_ID=0",
        str(SCRIPT.with_name("submit_job.sh")), *overrides,
    )  # fmt: skip
    return Sent(where, folder / "plain" / "not known yet", job, out)


def test_plain_script(sent: dict[str, Sent], golden: Golden) -> None:
    """Its first start makes run, snapshot and submission; the next one goes on with them."""
    job = sent["plain"]
    runs_dir = job.run.parent
    job.until(lambda: list(runs_dir.glob("default/*/status.json")), "the run to begin")
    (job.run,) = (status.parent for status in runs_dir.glob("default/*/status.json"))
    job.until_training()
    (submission,) = submissions(job.run.parent)
    assert (submission.id, submission.arrays[0].job_of(0)) == (f"job-{job.job}", job.job)
    assert "slurm/submit_job.sh" in submission.command
    assert [place.submission for place in places(job.run)] == [submission.id]
    assert submission.output_of(job.job) == job.out
    edited = job.out.parent / "checkout" / "slurm" / "in_job" / "plain.py"
    edited.unlink()
    edited.write_text("this is being edited\n")
    job.where.say("scancel", "--signal=USR2", job.job)
    job.until(lambda: len(job.starts) > 1, "another start, with the code of the first")
    first, second = job.starts
    assert (first.end, first.state) == ("requeued", "timeout"), job.told()
    assert second.step_before == first.step_after != 0
    assert len(list(submissions(job.run.parent))) == 1
    assert "\r" not in job.out.read_text()
    job.where.say("scancel", job.job)
    job.until_over()


def test_script_that_is_kept(sent: dict[str, Sent]) -> None:
    job = sent["kept"]
    job.until_over()
    (job.run,) = (status.parent for status in job.run.parent.glob("default/*/status.json"))
    assert (job.state, job.ends()) == ("COMPLETED", [("done", "done", None)]), job.told()


def test_series_are_whole_when_a_job_ends(sent: dict[str, Sent], golden: Golden) -> None:
    """`logging=csv`: the process beside the run has its last words before the job ends."""
    job = sent["series"]
    job.until_over()
    assert job.ends() == [("done", "done", None)], job.told()
    with open(job.run / "series.csv", newline="") as file:
        told = [row for row in csv.DictReader(file) if row["series"] == "train_loss"]
    with open(job.run / "metrics.csv", newline="") as file:
        wrote = list(csv.DictReader(file))
    assert [(row["step"], float(row["value"])) for row in told] == [
        (row["step"], float(row["train_loss"])) for row in wrote
    ]
    assert len(told) == 40


def test_events_are_whole_when_a_job_ends(sent: dict[str, Sent]) -> None:
    """`logging=tensorboard`."""
    if is_missing("tensorboard"):
        pytest.skip("tensorboard is not installed: make install-test")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    job = sent["events"]
    job.until_over()
    assert job.ends() == [("done", "done", None)], job.told()
    events = EventAccumulator(str(job.run)).Reload()
    assert [event.step for event in events.Scalars("train_loss")] == list(range(1, 41))
    assert events.Scalars("val_loss")[-1].step == 40


def test_slots_a_kill_hits_one_run(sent: dict[str, Sent]) -> None:
    job = sent["slots"]
    job.until_over()
    assert job.ends() == [("done", "done", None)], job.told()
    ends = {
        name: [
            (start.end, start.state)
            for run in job.run.parent.glob(f"*-{name}-*")
            for start in read_starts(run)
        ]
        for name in ("seed5", "seed7")
    }
    assert ends == {"seed5": [("ended", "oom")], "seed7": [("done", "done")]}, job.told()
    assert job.state == "FAILED"
    said = job.out.read_text()
    assert "[mem] first_step" in said
    assert not {"\r", "\x1b"} & {*said}, "no line that moves: nobody looks at it as it comes"


def test_timeout_and_on_to_the_same_losses(sent: dict[str, Sent], tmp_path: Path) -> None:
    """The limit of two minutes is announced 30 to 90 s before; the job then runs again, mostly once."""
    job = sent["timeout"]
    with ThreadPoolExecutor(1) as beside:
        uninterrupted = copy_of(long_config(job.run.parent.parent.parent), tmp_path / "other")
        other = beside.submit(run_core, uninterrupted, "--quiet", patience_s=2 * PATIENCE_S)
        job.until_over()
        assert other.result().returncode == 0
    ends = job.ends()
    assert len(ends) > 1, job.told()
    assert ends == [("requeued", "timeout", "SIGUSR2")] * (len(ends) - 1) + [("done", "done", None)]
    assert job.state == "COMPLETED"
    assert [start.restart for start in job.starts] == [*range(len(ends))]
    assert len({start.job_id for start in job.starts}) == 1
    assert all(after.step_before == before.step_after for before, after in _pairs(job))
    ours, theirs = outcome(job.run), outcome(uninterrupted)
    for found in (ours, theirs):
        del found["checkpoints"]  # the last ones and the best: of other steps
    assert ours == theirs


def _pairs(job: Sent) -> Iterator[tuple[object, object]]:
    yield from zip(job.starts, job.starts[1:], strict=False)
