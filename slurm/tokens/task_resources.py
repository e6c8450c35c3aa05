"""Resources that a task of a token set requests, and what the cluster would refuse.

The site's file and `slurm.KEY=VALUE` hold as for a run, except that a task is on one node and has no GPU.
`auto` means:

    mem            the most that its processes can hold, whatever the text (docs/tokenize.md, Engines)
    cpus_per_task  --workers, else 4, or what the largest node has
    time           the partition's default; a task that reaches it resumes afterwards
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from conf import AUTO, Config
from data_loading.pretokenizer.engines.registry import most_memory_bytes
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.saved_datasets import HubDataset
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted
from memory import format_bytes
from slurm.cluster import Ask, Cluster, ask
from slurm.cluster.reachability import is_offline, missing_setup
from slurm.cluster.resources import key_conflicts

CPUS = 4
_OF_A_TASK: dict[str, Any] = {
    "nodes": 1, "tasks_per_node": 1, "gpus_per_node": 0, "gpu_type": None, "pack": 1, "workers": None,
    "by_model": {},
}  # fmt: skip
_FOR_RUNS = (*_OF_A_TASK, "confirm", "gpu_mem", "name", "max_idle_attempts", "require_clean")
"""Keys of `slurm` that are for runs only."""


@dataclass(frozen=True)
class TaskRequest:
    """Request of each task."""

    config: Config
    """The site's, changed for token sets."""
    ask: Ask
    workers: int
    """Threads that tokenize in a task."""

    def __str__(self) -> str:
        mem = "memory" if self.ask.mem_bytes is None else format_bytes(self.ask.mem_bytes)
        time = self.ask.options.get("time", "the partition's default time")
        return f"{counted(self.ask.cpus, 'CPU')}, {mem} ({self.ask.how_mem}), {time}"


def read_site(site: str, overrides: Sequence[str]) -> Config:
    """The configuration of a site, for tasks of a token set. overrides: `slurm.KEY=VALUE`.

    Raises:
        UserError: the site or a key does not exist, or a value cannot be used.
    """
    from slurm.launch.compose_one import compose

    keys = [override.partition("=")[0] for override in overrides]
    what = "is for runs: a task that tokenizes is on one node, without GPUs. Remove it"
    wrong = [Problem(key, what) for key in keys if key.removeprefix("slurm.") in _FOR_RUNS]
    if wrong:
        raise UserError(*wrong)
    config = compose([f"slurm={site}", *overrides])
    return replace(config, slurm=replace(config.slurm, **_OF_A_TASK))


def request_of(
    config: Config, tokenizer: Tokenizer, engine: str, workers: int | None, cluster: Cluster
) -> TaskRequest:
    """The request of each task. workers: threads as typed; None: by the cores.

    Raises:
        UserError: no engine has that name.
    """
    wanted, cpus = config.slurm, workers or 1
    if wanted.cpus_per_task != AUTO:
        cpus = int(wanted.cpus_per_task)
    elif workers is None:
        cores = (found.most_cpus for found in cluster.partitions_of(wanted.partition))
        cpus = min([CPUS, *(count for count in cores if count is not None)])
    workers = (cpus if cpus > 1 else 0) if workers is None else workers
    mem = most_memory_bytes(tokenizer, engine, workers) if wanted.mem == AUTO else wanted.mem
    config = replace(config, slurm=replace(wanted, cpus_per_task=cpus, mem=mem))
    found = ask(config, None, cluster)
    if wanted.mem == AUTO and found.mem_bytes:
        found = replace(found, how_mem="the most it can hold")
    return TaskRequest(config, found, workers)


def refusals(request: TaskRequest, whole: Inputs) -> list[Problem]:
    """Everything that is wrong with the request, before the cluster is asked."""
    wanted = request.config.slurm
    found = [*key_conflicts(wanted), *missing_setup(wanted)]
    if is_offline(wanted):
        what = "is read from the hub, and the nodes have no internet. Tokenize it without --slurm"
        hub = [part.what for part in whole.parts if isinstance(unwrapped(part), HubDataset)]
        found += [Problem("slurm.offline", f"{name} {what}") for name in hub]
    return found
