"""The peak of a real run's own memory, measured from outside: what estimates are held against.

Each run is a process of its own, `core.py FOLDER` on computed tokens, with steps, an evaluation and a
checkpoint. Its anon and shmem are read every few milliseconds; since a peak may be shorter, VmHWM less the
mapped files counts where it is more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conf import Config
from conf.schema import Dataset, Ensemble, Model, Tokenizer, Training
from memory.process import Process, read_descendants, read_process

CORE = Path(__file__).resolve().parent.parent / "core.py"
EVERY_S = 0.003
VOCAB = 50_257


@dataclass(frozen=True)
class Measured:
    """In bytes. sampled: the most that was seen of RssAnon + RssShmem; by_hwm: VmHWM less RssFile.

    job: sampled together with its children, but for copies of it that are about to become a program. files:
    its mapped files. with_forks: the most anon that it and its forks (loader workers) held, each page once.
    fork_rss: of the largest fork.
    """

    sampled_bytes: int
    by_hwm_bytes: int
    exit_code: int
    job_bytes: int
    files_bytes: int
    with_forks_bytes: int
    fork_rss_bytes: int

    @property
    def peak_bytes(self) -> int:
        return max(self.sampled_bytes, self.by_hwm_bytes)


def run_config(
    runs: Path,
    width: int,
    batch: int,
    *,
    seq_len: int = 128,
    steps: int = 3,
    vocab: int = VOCAB,
    **training: Any,
) -> Config:
    """A size of the ladder on computed tokens, one micro-batch a step unless `effective_batch` is given."""
    options = {
        "max_steps": steps, "seq_len": seq_len, "effective_batch": batch, "micro_batch": batch, "evals": 1,
        "eval_tokens": 2 * batch * seq_len, "device": "cpu", "precision": "fp32",
    }  # fmt: skip
    return Config(
        model=Model(name=f"{width}d", d_model=width),
        dataset=Dataset(name="synthetic", path=f"synthetic:uniform:{vocab}:10M:0"),
        tokenizer=Tokenizer(name="ids"),
        training=Training(**(options | training)),
        runs_dir=str(runs),
    )


def with_members(config: Config, members: int) -> Config:
    """So many runs of it, of seeds of their own, in one process."""
    return replace(config, ensemble=Ensemble(seed=[str(seed) for seed in range(members)], together=members))


def with_arch(config: Config, **arch: Any) -> Config:
    """The same with another architecture."""
    return replace(config, arch=replace(config.arch, **arch))


def measure(config: Config, compiler_cache: Path | None = None) -> Measured:
    """Run it in a fresh process; raises CalledProcessError when it fails. compiler_cache: torch.compile's.

    An ensemble's runs are all in that process.
    """
    from conf.ensembles import members_of
    from training.attempt.begin import create_run
    from training.plan import make_plan

    folders = []
    for member in members_of(config):
        plan = make_plan(member, tokenize=True)
        assert plan.identity is not None
        folders.append(str(create_run(plan.config, plan.identity)))
    environment = {}
    if compiler_cache is not None:
        # The headers that it compiles beforehand lie in the folder for temporary files, whatever the cache.
        compiler_cache.mkdir(exist_ok=True)
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(compiler_cache), "TMPDIR": str(compiler_cache)}
    return watch([sys.executable, str(CORE), *folders, "--quiet"], os.environ | environment)


def watch(command: list[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command and sample its own process, and with it those that it started."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    sampled, by_hwm, files, job, with_forks, fork_rss = 0, 0, 0, 0, 0, 0
    while process.poll() is None:
        found = read_process(process.pid)
        if found is not None and found.anon_bytes is not None:
            files = max(files, found.file_bytes or 0)
            sampled = max(sampled, _held(found))
            children = read_descendants(found)
            programs = [child for child in children if child.name != found.name]
            if forks := [child for child in children if child.name == found.name]:
                fork_rss = max(fork_rss, *(child.rss_bytes or 0 for child in forks))
                with_forks = max(with_forks, sum(_share_of_anon(one.pid) for one in (found, *forks)))
            job = max(job, _held(found) + sum(map(_held, programs)))
            by_hwm = max(by_hwm, (found.peak_rss_bytes or 0) - files)
        time.sleep(EVERY_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(sampled, by_hwm, process.returncode, max(job, sampled), files, with_forks, fork_rss)


def _share_of_anon(pid: int) -> int:
    """Anon of a process, a page that several share divided by their number (proc(5), smaps_rollup)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def _held(process: Process) -> int:
    return (process.anon_bytes or 0) + (process.shmem_bytes or 0)
