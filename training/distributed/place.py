"""Which process of a run this is: from Slurm's variables, torchrun's, or none. No torch."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.errors import UserError
from training.distributed.hostlist import expand_counts, expand_hosts

FIRST_PORT, PORTS = 10_000, 20_000
"""Ports that a job's number becomes: below those that Linux hands out by itself (32768 on)."""

_TORCHRUN = ("RANK", "WORLD_SIZE")
_SLURM = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True)
class Place:
    """Of one process among those of a run.

    local_rank, local_world_size: among those on this node. source: `slurm`, `torchrun` or `none`. address,
    port: where rank 0 is met; None, 0 of a process that is alone. key: what a meeting of the same run in
    another job, step or restart does not share. is_hosted: another process than rank 0 keeps the store there.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    source: str = "none"
    address: str | None = None
    port: int = 0
    key: str = ""
    is_hosted: bool = False

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
        """What the supervisor of this rank writes into: the run's folder, or `rank3` in it."""
        return run if self.is_first else run / f"rank{self.rank}"


def place_of(run: str, environment: Mapping[str, str] | None = None) -> Place:
    """Where this process stands. run: name of the run's folder, which several runs of one job differ in.

    RANK and WORLD_SIZE go before Slurm's: torchrun may have been started inside of a job. Of Slurm's only
    those of a step count: a batch script has SLURM_PROCID too, and is one process.

    Raises:
        UserError: the variables contradict each other, or do not tell where rank 0 is.
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
    try:
        counts = expand_counts(given.get("SLURM_STEP_TASKS_PER_NODE") or given["SLURM_TASKS_PER_NODE"])
        on_this_node = counts[_number(given, "SLURM_NODEID", 0)]
    except (KeyError, IndexError, ValueError):
        on_this_node = world
    return Place(
        rank=_number(given, "SLURM_PROCID"),
        world_size=world,
        local_rank=_number(given, "SLURM_LOCALID", 0),
        local_world_size=on_this_node,
        source="slurm",
        address=given.get("MASTER_ADDR") or _first_host(given),
        port=int(port) if port and port.isdigit() else port_of(key),
        key=key,
    )


def port_of(key: str) -> int:
    """The port of a meeting: the same for all its ranks, another for another job, step, restart or run."""
    digest = hashlib.sha256(key.encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def _first_host(given: Mapping[str, str]) -> str:
    """Where task 0 is. A name that is none to the network, as on one machine's cluster: where srun ran."""
    hosts = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or ""
    try:
        (first, *_) = expand_hosts(hosts)
    except ValueError as error:
        raise UserError(
            f"SLURM_STEP_NODELIST={hosts} does not tell where rank 0 is. Set MASTER_ADDR to its host",
            code="no-node-list",
        ) from error
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
