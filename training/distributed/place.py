"""Rank of this process in its run: from Slurm's variables, torchrun's, or none. No torch."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.errors import UserError

FIRST_PORT, PORTS = 10_000, 20_000
"""Range of ports for meetings, below those that Linux assigns to clients (32768 on)."""

_TORCHRUN = ("RANK", "WORLD_SIZE")
_SLURM = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True)
class Place:
    """Place of one process among those of a run."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Rank among the processes on this node."""
    local_world_size: int = 1
    source: str = "none"
    """`slurm`, `torchrun` or `none`."""
    address: str | None = None
    """Host of the store at which the ranks meet; None for a single process."""
    port: int = 0
    key: str = ""
    """Name of the meeting, unique to the job, step, restart and run."""
    is_hosted: bool = False
    """Another process than rank 0 keeps the store."""

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes the run's files."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    def file(self, name: str) -> str:
        """A file of this rank's own: `log.txt` of rank 0, `log.rank3.txt` of rank 3."""
        if self.is_first:
            return name
        stem, _, suffix = name.rpartition(".")
        return f"{stem}.rank{self.rank}.{suffix}"

    def folder(self, run: Path) -> Path:
        """Folder for the supervisor of this rank: the run's folder, or `rank3` in it."""
        return run if self.is_first else run / f"rank{self.rank}"


def place_of(run: str, environment: Mapping[str, str] | None = None) -> Place:
    """Place of this process, from its environment.

    RANK and WORLD_SIZE take precedence over Slurm's variables, since torchrun can run inside a job. Slurm's
    variables count only within a step: a batch script has SLURM_PROCID too, and is one process.

    Args:
        run: name of the run's folder, which distinguishes runs of one job.

    Raises:
        UserError: the variables contradict each other, or lack the host of rank 0.
    """
    given = os.environ if environment is None else environment
    if all(given.get(name) for name in _TORCHRUN):
        place = _torchruns(given)
    elif all(given.get(name) for name in _SLURM):
        place = _slurms(given, run)
    else:
        return Place()
    if not 0 <= place.rank < place.world_size or not 0 <= place.local_rank < place.local_world_size:
        names = ", ".join(f"{name}={given.get(name)}" for name in (*_TORCHRUN, *_SLURM) if name in given)
        raise UserError(f"{names}: ranks count from 0 and end below their number", code="rank-out-of-range")
    return Place() if place.is_alone else place


def _torchruns(given: Mapping[str, str]) -> Place:
    rank, world = _number(given, "RANK"), _number(given, "WORLD_SIZE")
    address, port = given.get("MASTER_ADDR"), given.get("MASTER_PORT")
    if world > 1 and not (address and port):
        raise UserError(
            f"RANK={rank} WORLD_SIZE={world}, but not where rank 0 is: set MASTER_ADDR and MASTER_PORT too, "
            "as torchrun does: torchrun --nproc-per-node 2 core.py RUN",
            code="no-master",
        )
    return Place(
        rank=rank,
        world_size=world,
        local_rank=_number(given, "LOCAL_RANK", rank),
        local_world_size=_number(given, "LOCAL_WORLD_SIZE", world),
        source="torchrun",
        address=address,
        port=_number(given, "MASTER_PORT", 0),
        key=f"{given.get('TORCHELASTIC_RUN_ID', '')}.{given.get('TORCHELASTIC_RESTART_COUNT', '0')}",
        is_hosted=given.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _slurms(given: Mapping[str, str], run: str) -> Place:
    world = _number(given, "SLURM_STEP_NUM_TASKS")
    if world == 1:
        return Place(source="slurm")
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    key = ".".join([*(given.get(name, "0") for name in names), run])
    port = given.get("MASTER_PORT")
    return Place(
        rank=_number(given, "SLURM_PROCID"),
        world_size=world,
        local_rank=_number(given, "SLURM_LOCALID", 0),
        local_world_size=_tasks_here(given) or world,
        source="slurm",
        address=given.get("MASTER_ADDR") or _first_host(given),
        port=int(port) if port and port.isdigit() else port_of(key),
        key=key,
    )


def _tasks_here(given: Mapping[str, str]) -> int | None:
    """Tasks of the step on this node, from `2(x3),1` (three nodes with 2, one with 1); None if unknown."""
    text = given.get("SLURM_STEP_TASKS_PER_NODE") or given.get("SLURM_TASKS_PER_NODE", "")
    counts: list[int] = []
    for count, nodes in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(nodes or 1)
    node = _number(given, "SLURM_NODEID", 0)
    return counts[node] if node < len(counts) else None


def port_of(key: str) -> int:
    """Port of a meeting: equal on all its ranks, different for another job, step, restart or run."""
    digest = hashlib.sha256(key.encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def _first_host(given: Mapping[str, str]) -> str:
    """Host of task 0; the host of srun if the network does not know its name."""
    hosts = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or ""
    # `n[08-11,20]-ib,gpu-a`: the first number of each bracket is that of the first host (slurm.conf(5)).
    first = re.sub(r"\[(\d+)[\d,-]*\]", r"\1", hosts).partition(",")[0].strip()
    if not first or set("[]") & set(first):
        raise UserError(
            f"SLURM_STEP_NODELIST={hosts} names no host for rank 0. Set MASTER_ADDR to its host",
            code="no-node-list",
        )
    try:
        socket.getaddrinfo(first, None)
    except OSError:
        return given.get("SLURM_LAUNCH_NODE_IPADDR") or first
    return first


def _number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = given.get(name, "")
    if text.isdigit():
        return int(text)
    if default is None or text:
        raise UserError(f"{name}={text}: expected a number", code="not-a-number")
    return default
