"""What a node must be able to reach, checked where the user stands: data, code, folders, lines of set-up.

A node without internet finds that out an hour later, in the queue's own time. So what a run would fetch is
refused now (`slurm.offline=true`, as the site's file says); tokens and tokenizer were opened already to make
the plan.
"""

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

from conf.by_model import settle
from conf.schema import Slurm
from experiment_utils.errors import Problem
from slurm.cluster.facts import Cluster

if TYPE_CHECKING:
    from training.plan import Plan

_OF_ONE_MACHINE = ("tmpfs", "ramfs")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_SOURCES = ("source", ".")
_ACTIVATES = re.compile(r"\bactivate\b")
_LIMITS = (
    ("CPU", "t", 1, "that uses more seconds of CPU time"),
    ("AS", "v", 1 << 10, "that maps more KB than that"),
    ("DATA", "d", 1 << 10, "whose data are more KB than that"),
    ("FSIZE", "f", 1 << 10, "that writes a file of more KB than that"),
)
"""Of resource.RLIMIT_*: name, letter of bash's ulimit, its unit, and which process Slurm ends."""


def unreachable(plans: Iterable[Plan]) -> list[Problem]:
    """What a run would miss on a node, each thing once."""
    found: dict[Problem, None] = {}
    for plan in plans:
        wanted = settle(plan.config).slurm
        found |= dict.fromkeys(missing_setup(wanted))
        if is_offline(wanted):
            found |= dict.fromkeys(_fetched(plan))
    return list(found)


def is_offline(wanted: Slurm) -> bool:
    """Whether nodes are to fetch nothing."""
    return wanted.offline or os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")


def _fetched(plan: Plan) -> Iterator[Problem]:
    """What is read from elsewhere while the run goes on."""
    from data_loading.remote.address import is_remote

    path = plan.config.dataset.path
    why = "the nodes have no internet (slurm.offline=true, or HF_HUB_OFFLINE is set)"
    if path is not None and is_remote(path):
        yield Problem(
            "dataset.path",
            f"{path} is read over the network while the run goes on, and {why}. Copy it to a file system of "
            "the cluster and give that path",
        )
    elif plan.data is not None and plan.data.get("tokens") is None:
        yield Problem(
            "dataset.path",
            f"{plan.data.get('path')} is streamed from the hub while the run goes on, and {why}. Tokenize it "
            "where there is a network: python pretokenize_dataset.py --help",
        )


def missing_setup(wanted: Slurm) -> Iterator[Problem]:
    """Files that the lines of set-up read, by whole paths, and that are not there."""
    for line in wanted.setup:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            yield Problem("slurm.setup", f"the shell cannot read `{line}`: {error}")
            continue
        for command, path in pairwise(words):
            is_file = command in _SOURCES and path.startswith(("/", "~")) and "$" not in path
            if is_file and not Path(path).expanduser().exists():
                yield Problem("slurm.setup", f"`{line}`: there is no {path}")


def warnings_of(plans: Sequence[Plan], cluster: Cluster, code: Path) -> list[str]:
    """What is different on a node from what the user may expect: folders, limits, the Python that runs."""
    return [
        *of_this_machine_alone(plans, cluster, code),
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


def of_this_machine_alone(plans: Iterable[Plan], cluster: Cluster, code: Path) -> list[str]:
    """Warnings of folders that nodes most likely do not see; none where the nodes are this machine."""
    folders = dict.fromkeys(folder for plan in plans for folder in _folders(plan))
    return local_folders([("the code", code), *folders], cluster)


def carried_limits(plans: Sequence[Plan], cluster: Cluster) -> list[str]:
    """Warnings of limits of this shell (ulimit) that Slurm sets for the jobs too, and that end a run."""
    carried = cluster.settings.get("PropagateResourceLimits", "ALL").upper().split(",")
    kept = cluster.settings.get("PropagateResourceLimitsExcept", "").upper().split(",")
    options = [option for plan in plans for option in settle(plan.config).slurm.options]
    if not plans or carried == ["NONE"] or any(option.startswith("--propagate") for option in options):
        return []
    warnings = []
    for name, letter, unit_bytes, what in _LIMITS:
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        goes = name in carried or (carried == ["ALL"] and name not in kept)
        if goes and limit != resource.RLIM_INFINITY:
            warnings.append(
                f"`ulimit -{letter}` of this shell is {limit // unit_bytes}, and Slurm sets it for the jobs "
                f"too: a process {what} is ended. Without it: 'slurm.options=[--propagate=NONE]'"
            )
    return warnings


def local_folders(folders: Iterable[tuple[str, Path]], cluster: Cluster) -> list[str]:
    """Warnings of those of the folders, each with what it holds in words."""
    if cluster.is_this_machine:
        return []
    warnings: dict[str, None] = {}
    for name, path in folders:
        kind = local_kind(path)
        if kind is not None:
            told = f"{name} lies in {path}, {kind}: a node has another one there"
            warnings[f"{told}. Put it on a file system that all nodes share"] = None
    return list(warnings)


def _folders(plan: Plan) -> Iterator[tuple[str, Path]]:
    yield "runs_dir", Path(plan.config.runs_dir).absolute()
    for key in ("path", "val_path"):
        path = (plan.data or {}).get(key)
        if isinstance(path, str) and "://" not in path and Path(path).exists():
            yield f"dataset.{key}", Path(path).absolute()


def local_kind(path: Path) -> str | None:
    """Why a path is of this machine alone, in words; None where nothing says so."""
    from data_loading.readers.file_systems import file_system_of

    there = next(parent for parent in (path, *path.parents) if parent.exists())
    kind = file_system_of(there)
    if kind in _OF_ONE_MACHINE:
        return f"a {kind} of this machine"
    real = os.path.realpath(there)
    if any(real == folder or real.startswith(f"{folder}/") for folder in _TEMPORARY):
        return "a temporary folder of this machine"
    return None
