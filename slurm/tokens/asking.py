"""What a task of a token set and their merge ask of the cluster, and what it would say no to.

The site's file and `slurm.KEY=VALUE` hold as for a run, with three differences: a task is on one node, it has
no GPU, and what is `auto` is what the pretokenizer needs:

    mem            the most that its processes can hold, whatever the text (docs/tokenize.md, Engines)
    cpus_per_task  --workers, else 4, or what the largest node has
    time           none is asked for: the partition's default. A task that comes to its end goes on after it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf import AUTO, Config
from conf.schema import Slurm
from data_loading.pretokenizer.hugging_face import HubDataset
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.most_memory import most_memory_bytes
from data_loading.pretokenizer.wrapped import unwrapped
from data_loading.tokenizer import Tokenizer
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, parse_duration
from slurm.cluster import Ask, Cluster
from slurm.cluster.facts import Partition
from slurm.cluster.options import MEMORY_OTHERWISE, read_options
from slurm.cluster.reach import is_offline, local_folders, missing_setup
from slurm.cluster.refuse import problems
from slurm.cluster.resources import default_limit, sbatch_options, setup_lines

CPUS = 4
MERGE_BYTES = 1 << 30
_NOT_FOR_TOKENS = (
    "nodes", "tasks_per_node", "gpus_per_node", "gpu_type", "gpu_mem", "pack", "workers", "by_model", "name",
    "max_idle_attempts", "require_clean",
)  # fmt: skip
"""Keys of `slurm` that speak of runs."""


@dataclass(frozen=True)
class Asking:
    """config: of the site, with what is for tokens in it. task, merge: what the jobs ask for. workers:
    processes of a task."""

    config: Config
    task: Ask
    merge: Ask
    workers: int

    @property
    def wanted(self) -> Slurm:
        return self.config.slurm


def read_site(site: str, overrides: Sequence[str]) -> Config:
    """The configuration of a site, for tasks of a token set. overrides: `slurm.KEY=VALUE`.

    Raises:
        UserError: there is no such site or key, or a value cannot be used.
    """
    from slurm.one_run import compose

    keys = [override.partition("=")[0] for override in overrides]
    wrong = [key for key in keys if key.removeprefix("slurm.") in _NOT_FOR_TOKENS]
    if wrong:
        what = "is for runs: a task that tokenizes is on one node, without GPUs. Leave it away"
        raise UserError(*(Problem(key, what) for key in wrong))
    config = compose([f"slurm={site}", *overrides])
    wanted = dataclasses.replace(
        config.slurm,
        nodes=1,
        tasks_per_node=1,
        gpus_per_node=0,
        gpu_type=None,
        pack=1,
        workers=None,
        by_model={},
    )
    return dataclasses.replace(config, slurm=wanted)


def ask_for(
    config: Config, tokenizer: Tokenizer, engine: str, workers: int | None, cluster: Cluster
) -> Asking:
    """What the jobs ask for. workers: as typed; None: by the cores.

    Raises:
        UserError: no engine of that name.
    """
    wanted = config.slurm
    partitions = cluster.partitions_of(wanted.partition)
    cpus = _cpus(wanted, workers, partitions)
    processes = (cpus if cpus > 1 else 0) if workers is None else workers
    limit_s, how_time, is_asked = _limit(wanted, partitions)
    most = most_memory_bytes(tokenizer, engine, processes)
    how = f"the most that {_processes(processes)} can hold"

    def ask(cpus: int, auto_bytes: int, how_mem: str) -> Ask:
        options, _ = read_options(wanted.options)
        mem_bytes, how_mem = _memory(wanted, auto_bytes, how_mem)
        if any(name in options for name in MEMORY_OTHERWISE):
            mem_bytes, how_mem = None, "slurm.options"
        asked = sbatch_options(wanted, 1, cpus, mem_bytes, limit_s, is_asked)
        if not wanted.requeue:
            del asked["signal"]  # which nobody would answer
        return Ask(
            asked | options, setup_lines(wanted), mem_bytes, limit_s, None, 1, cpus, 0, how_mem, how_time
        )

    merge = ask(1, MERGE_BYTES, "of a merge")
    if merge.mem_bytes is not None:  # what is typed is for the tasks
        bounded = min(merge.mem_bytes, MERGE_BYTES)
        merge.options["mem"] = f"{bounded >> 20}M"
        merge = dataclasses.replace(merge, mem_bytes=bounded)
    merge.options.pop("signal", None)
    return Asking(config, ask(cpus, most, how), merge, processes)


def refusals(asking: Asking, whole: Inputs, tasks: int, cluster: Cluster) -> list[Problem]:
    """All that the cluster would say no to, as far as it has told of itself."""
    found = problems([(asking.config, asking.task), (asking.config, asking.merge)], cluster)
    found += missing_setup(asking.wanted)
    found += _fetched(asking.wanted, whole)
    if tasks > asking.wanted.confirm:
        most = asking.wanted.confirm
        what = f"{tasks:,} tasks, and more than {most:,} only when asked for: slurm.confirm={tasks}"
        found.append(Problem("slurm.confirm", what))
    return found


def warnings(whole: Inputs, output: Path, code: Path, cluster: Cluster) -> list[str]:
    """Folders that nodes most likely do not see."""
    folders = [("the code", code), ("the set", output.absolute().parent)]
    for state in whole.state():
        if isinstance(state, list) and state and isinstance(state[0], str) and state[0].startswith("/"):
            folders.append(("the text", Path(state[0]).parent))
    return local_folders(dict.fromkeys(folders), cluster)


def _cpus(wanted: Slurm, workers: int | None, partitions: Iterable[Partition]) -> int:
    if wanted.cpus_per_task != AUTO:
        return int(wanted.cpus_per_task)
    if workers is not None:
        return max(1, workers)
    most = [found.most_cpus for found in partitions if found.most_cpus is not None]
    return min(CPUS, *most) if most else CPUS


def _processes(workers: int) -> str:
    if not workers:
        return "one process"
    return f"{counted(workers, 'worker')} and the process beside {'it' if workers == 1 else 'them'}"


def _memory(wanted: Slurm, auto_bytes: int, how: str) -> tuple[int | None, str]:
    if wanted.mem is None:
        return None, "what the cluster gives (slurm.mem=null)"
    return (auto_bytes, how) if wanted.mem == AUTO else (int(wanted.mem), "slurm.mem")


def _limit(wanted: Slurm, partitions: Sequence[Partition]) -> tuple[float | None, str, bool]:
    """(the limit in seconds, where it comes from, whether sbatch is told)"""
    if wanted.time != AUTO:
        return parse_duration(wanted.time), "slurm.time", True
    limit_s, how = default_limit(partitions)
    return limit_s, how, False


def _fetched(wanted: Slurm, whole: Inputs) -> Iterator[Problem]:
    if not is_offline(wanted):
        return
    for part in whole.parts:
        if isinstance(unwrapped(part), HubDataset):
            yield Problem(
                "slurm.offline",
                f"{part.what} is read from the hub, and the nodes have no internet. Tokenize it where there "
                "is one, without --slurm",
            )
