"""Checks, where a run is submitted, of what its node must reach: data, code, folders, lines of set-up."""

from __future__ import annotations

import os
import re
import resource
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from conf.per_model_slurm import settle
from conf.schema import Slurm
from experiment_utils.errors import Problem
from slurm.cluster.facts import Cluster

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

_OF_ONE_MACHINE = ("tmpfs", "ramfs")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_SOURCES = ("source", ".")
_ACTIVATES = re.compile(r"\bactivate\b")
_LIMITS = (("CPU", "t", 1), ("AS", "v", 1 << 10), ("DATA", "d", 1 << 10), ("FSIZE", "f", 1 << 10))
"""Names of resource.RLIMIT_*, letters of bash's ulimit, and its units."""


def unreachable(plans: Iterable[Plan]) -> list[Problem]:
    """Everything that runs need and would miss on a node, each once."""
    found: dict[Problem, None] = {}
    for plan in plans:
        wanted = settle(plan.config).slurm
        found |= dict.fromkeys(missing_setup(wanted))
        if is_offline(wanted):
            found |= dict.fromkeys(_fetched(plan))
    return list(found)


def is_offline(wanted: Slurm) -> bool:
    """Whether the nodes have no internet, by slurm.offline or HF_HUB_OFFLINE."""
    return wanted.offline or os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")


def _fetched(plan: Plan) -> Iterator[Problem]:
    """Data that a run reads over the network."""
    from data_loading.remote.address import is_remote

    path = plan.config.dataset.path
    why = "over the network, and the nodes have no internet (slurm.offline=true, or HF_HUB_OFFLINE is set)"
    if path is not None and is_remote(path):
        what = f"{path} is read {why}. Copy it to a file system of the cluster and give that path"
    elif plan.data is not None and plan.data.get("tokens") is None:
        tokenize = "Tokenize it on this machine: python pretokenize_dataset.py --help"
        what = f"{plan.data.get('path')} is streamed {why}. {tokenize}"
    else:
        return
    yield Problem("dataset.path", what)


def missing_setup(wanted: Slurm) -> Iterator[Problem]:
    """Files that lines of `slurm.setup` source, by whole paths, and that do not exist."""
    for line in wanted.setup:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            yield Problem("slurm.setup", f"the shell cannot read `{line}`: {error}")
            continue
        for command, path in pairwise(words):
            is_file = command in _SOURCES and path.startswith(("/", "~")) and "$" not in path
            if is_file and not Path(path).expanduser().exists():
                yield Problem("slurm.setup", f"`{line}`: {path} does not exist")


def warnings_of(plans: Sequence[Plan], cluster: Cluster, code: Path) -> list[str]:
    """Warnings of what a run finds on a node and does not expect: folders, limits, another Python."""
    folders = dict.fromkeys(folder for plan in plans for folder in _folders(plan))
    return [
        *local_folders([("the code", code), *folders], cluster),
        *carried_limits(plans, cluster),
        *other_python(plans),
    ]


def other_python(plans: Iterable[Plan]) -> list[str]:
    """Warnings of environments that slurm.setup activates: a run uses the Python that submitted it."""
    wanted = [settle(plan.config).slurm for plan in plans]
    lines = dict.fromkeys(line for one in wanted if one.python is None for line in one.setup)
    found = [line for line in lines if _ACTIVATES.search(line) and f"{sys.prefix}/bin/activate" not in line]
    return [
        f"slurm.setup: `{line}` does not choose the Python of a run, which is that of this command, "
        f"{sys.executable}. To use the other one: slurm.python=python"
        for line in found
    ]


def carried_limits(plans: Sequence[Plan], cluster: Cluster) -> list[str]:
    """Warning of limits of this shell (ulimit) that Slurm sets for the jobs too; at most one line."""
    carried = cluster.settings.get("PropagateResourceLimits", "ALL").upper().split(",")
    kept = cluster.settings.get("PropagateResourceLimitsExcept", "").upper().split(",")
    options = [option for plan in plans for option in settle(plan.config).slurm.options]
    if not plans or any(option.startswith("--propagate") for option in options):
        return []
    limits = []
    for name, letter, unit_bytes in _LIMITS:
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        is_carried = name in carried or (carried == ["ALL"] and name not in kept)
        if is_carried and limit != resource.RLIM_INFINITY:
            limits.append(f"ulimit -{letter} {limit // unit_bytes}")
    how = "without them: 'slurm.options=[--propagate=NONE]'"
    return [f"limits of this shell hold for the jobs too ({', '.join(limits)}); {how}"] if limits else []


def local_folders(folders: Iterable[tuple[str, Path]], cluster: Cluster) -> list[str]:
    """Warnings of folders that nodes most likely do not see; none if the nodes are this machine.

    Args:
        folders: What each holds, as text, and its path.
    """
    if cluster.is_this_machine:
        return []
    kinds = {(name, path): local_kind(path) for name, path in folders}
    fix = "Put it on a file system that all nodes share"
    return [
        f"{name} is in {path}, {kind}: a node has another one there. {fix}"
        for (name, path), kind in kinds.items()
        if kind is not None
    ]


def _folders(plan: Plan) -> Iterator[tuple[str, Path]]:
    yield "runs_dir", Path(plan.config.runs_dir).absolute()
    for key in ("path", "val_path"):
        path = (plan.data or {}).get(key)
        if isinstance(path, str) and "://" not in path and Path(path).exists():
            yield f"dataset.{key}", Path(path).absolute()


def local_kind(path: Path) -> str | None:
    """Why nodes do not see a path, as text; None if nothing says so."""
    from data_loading.readers.file_systems import file_system_of

    there = next(parent for parent in (path, *path.parents) if parent.exists())
    kind = file_system_of(there)
    if kind in _OF_ONE_MACHINE:
        return f"a {kind} of this machine"
    real = os.path.realpath(there)
    if any(real == folder or real.startswith(f"{folder}/") for folder in _TEMPORARY):
        return "a temporary folder of this machine"
    return None
