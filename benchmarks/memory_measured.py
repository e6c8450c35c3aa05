"""Peak of a real run's own memory, measured from outside, to compare estimates with.

Each run is a process, `core.py FOLDER` on computed tokens, with steps, an evaluation and a checkpoint. Its
anon and shmem are read every few milliseconds; since a peak may be shorter, VmHWM less the mapped files
counts where it is more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.processes import run
from conf import Config
from conf.schema import Dataset, Ensemble, Model, Tokenizer, Training
from memory.measure.process import Process, read_descendants, read_process

EVERY_S = 0.003
VOCAB = 50_257


@dataclass
class Measured:
    """Bytes. Forks are loader workers.

    peak: RssAnon + RssShmem, or VmHWM less RssFile. job: the sampled peak with its children, without forks.
    files: mapped files. with_forks: anon of the process and its forks, each page once. fork_rss: the largest.
    """

    peak_bytes: int = 0
    job_bytes: int = 0
    files_bytes: int = 0
    with_forks_bytes: int = 0
    fork_rss_bytes: int = 0

    def look(self, pid: int) -> None:
        """Sample the process."""
        found = read_process(pid)
        if found is None or found.anon_bytes is None:
            return
        children, own = read_descendants(found), _held(found)
        self.files_bytes = max(self.files_bytes, found.file_bytes or 0)
        by_hwm = (found.peak_rss_bytes or 0) - self.files_bytes
        self.peak_bytes = max(self.peak_bytes, own, by_hwm)
        programs = [child for child in children if child.name != found.name]
        self.job_bytes = max(self.job_bytes, own + sum(map(_held, programs)))
        if forks := [child for child in children if child.name == found.name]:
            self.fork_rss_bytes = max(self.fork_rss_bytes, *(child.rss_bytes or 0 for child in forks))
            shares = sum(_share_of_anon(one.pid) for one in (found, *forks))
            self.with_forks_bytes = max(self.with_forks_bytes, shares)


def _share_of_anon(pid: int) -> int:
    """Anon of a process, a page that several share divided by their number (proc(5), smaps_rollup)."""
    with suppress(OSError):  # it has ended
        sizes = re.findall(r"Pss_Anon: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
        return sum(int(size) << 10 for size in sizes)
    return 0


def _held(process: Process) -> int:
    return (process.anon_bytes or 0) + (process.shmem_bytes or 0)


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
    """A run on computed tokens, one micro-batch a step unless `effective_batch` is given."""  # fmt: skip
    chosen = {
        "max_steps": steps, "seq_len": seq_len, "effective_batch": batch, "micro_batch": batch, "evals": 1,
        "eval_tokens": 2 * batch * seq_len, "device": "cpu", "precision": "fp32",
    }  # fmt: skip
    return Config(
        model=Model(name=f"{width}d", d_model=width),
        dataset=Dataset(name="synthetic", path=f"synthetic:uniform:{vocab}:10M:0"),
        tokenizer=Tokenizer(name="ids"),
        training=Training(**(chosen | training)),
        runs_dir=str(runs),
    )


def with_members(config: Config, members: int) -> Config:
    """An ensemble of this run with seeds of their own, in one process."""
    seeds = [str(seed) for seed in range(members)]
    return replace(config, ensemble=Ensemble(seed=seeds, together=members))


def with_arch(config: Config, **arch: Any) -> Config:
    """The same with another architecture."""
    return replace(config, arch=replace(config.arch, **arch))


def measure(config: Config, compiler_cache: Path | None = None) -> Measured:
    """Train a run, or an ensemble, in a fresh process. compiler_cache: torch.compile's folder."""
    from conf.between_keys.ensembles import members_of
    from training.attempt.begin import create_run
    from training.plan.run_plan import make_plan

    plans = [make_plan(member, tokenize=True) for member in members_of(config)]
    folders = [create_run(plan.config, str(plan.identity)) for plan in plans]
    environment = {}
    if compiler_cache is not None:
        # Precompiled headers are in the folder for temporary files, whatever the cache.
        compiler_cache.mkdir(exist_ok=True)
        environment = dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "TMPDIR"), str(compiler_cache))
    return watch([sys.executable, ROOT / "core.py", *folders, "--quiet"], environment)


def watch(command: Sequence[Any], environment: dict[str, str] | None = None) -> Measured:
    """Run a command and sample its process, and the processes that it starts."""
    found = Measured()
    run(command, env=environment, look=found.look, every_s=EVERY_S)
    return found
