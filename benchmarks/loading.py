"""Compare the loader with its peers and a floor: speed, memory, and what it reads from a cold disk.

2^29 random ids, uint16, 1 GB: each loader in its own format (loading_peers.py). All are measured in fresh
processes with one thread, in each round once; a ratio is of two processes of one round. Batches are int64
tensors of torch, inputs and labels. Ours is also compared with the floor inside one process. The peers'
packages (0.2 GB) and files (benchmarks/.loading, 8 GB) are made once. Peers that cannot be had are left
out, with the reason.

    python benchmarks/loading.py --templar CHECKOUT      # 9 minutes, on a quiet machine
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.harness import BENCHMARKS, MB, benchmark, goal, in_turns, ratios, summary
from benchmarks.loading_floor import AgainstFloor, drop_from_cache
from benchmarks.loading_measure import Job
from benchmarks.loading_peers import LOADERS, VOCABULARY
from benchmarks.processes import LeftOut, commit_of, peers_python, run, versions_of

Shape = tuple[int, int]
SHAPES: tuple[Shape, ...] = ((1024, 32), (128, 256))
"""seq_len, batch size."""
BOUND_BYTES = 64 << 20
OURS, PREAD, BOUNDED, REPLACED = (
    "ours, mmap",
    "ours, pread",
    "ours, mmap of at most 64 MB",
    "the replaced system",
)
WANTED = {
    (1024, 32): {"best peer": 2.0, REPLACED: 4.0, "floor": 0.7},
    (128, 256): {REPLACED: 25.0, "floor": 0.8},
}
"""Ratios of speed, at least."""


@dataclass(frozen=True)
class Case:
    """loader: in loading_peers.py."""

    loader: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_peer(self) -> bool:
        return self.loader not in ("Ours", "Floor", "Replaced")


CASES = {
    OURS: Case("Ours", {"reader": "mmap"}),
    PREAD: Case("Ours", {"reader": "pread"}),
    BOUNDED: Case("Ours", {"reader": "mmap", "max_resident_bytes": BOUND_BYTES}),
    "the floor": Case("Floor"),
    REPLACED: Case("Replaced"),
    "templar": Case("Templar"),
    "nanoGPT": Case("NanoGpt"),
    "litdata": Case("Litdata"),
    "mosaicml-streaming": Case("Mosaic"),
    "Grain": Case("Grain"),
    "Megatron-core": Case("MegatronCore"),
    "OLMo-core": Case("Olmo"),
}


def write_tokens(path: Path, count: int, vocabulary: int = VOCABULARY) -> None:
    """A .npy of random ids, uint16, so that no page is a hole; left alone if it is there."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path, block = path.with_suffix(".partial"), 1 << 24
    tokens = np.lib.format.open_memmap(partial_path, "w+", np.dtype("<u2"), (count,))
    for start in range(0, count, block):
        size = min(block, count - start)
        random = np.random.default_rng(start)
        tokens[start : start + size] = random.integers(0, vocabulary, size, np.uint16)
    tokens.flush()
    partial_path.rename(path)


def drop(folder: Path) -> None:
    """Remove every file of a folder from the page cache."""
    drop_from_cache([path for path in folder.rglob("*") if path.is_file()])


def warm(folder: Path) -> None:
    """Read every file of a folder into the page cache again, from its beginning to its end.

    Pages that a loader read one by one would stay small, and cost it more faults than others.
    """
    drop(folder)
    buffer = bytearray(4 << 20)
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


class Bench:
    """Runs one loader at a time. left_out: reason by name."""

    def __init__(self, chosen: Any) -> None:
        self.chosen, self.left_out = chosen, dict[str, str]()
        self.folder = (chosen.folder or BENCHMARKS / ".loading").resolve() / f"2-{chosen.tokens}"
        self.tokens, self.python = self.folder / "tokens.npy", Path(sys.executable)
        self.packages = {case.loader: LOADERS[case.loader].package for case in CASES.values()}
        try:
            if chosen.quick:
                raise LeftOut("--quick")
            self.python = peers_python("loading_peers.txt")
        except LeftOut as error:
            self.left_out |= {name: str(error) for name, one in CASES.items() if self.packages[one.loader]}
        if chosen.templar is None:
            self.left_out["templar"] = "no --templar CHECKOUT"
        write_tokens(self.tokens, 1 << chosen.tokens)
        for seq_len, _ in SHAPES:
            for name in self.there():
                self._prepare(name, seq_len)

    def there(self) -> dict[str, Case]:
        """Cases that are not left out."""
        return {name: case for name, case in CASES.items() if name not in self.left_out}

    def files(self, name: str, seq_len: int) -> Path:
        """Folder with the files of a case."""
        loader = CASES[name].loader
        return self.folder / (f"{loader}-{seq_len}" if LOADERS[loader].by_window else loader)

    def _prepare(self, name: str, seq_len: int) -> None:
        folder = self.files(name, seq_len)
        if folder.exists():
            return
        unfinished = folder.with_suffix(".partial")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        if self.call(name, "prepare", self.tokens, unfinished, seq_len) is not None:
            unfinished.rename(folder)

    def call(self, name: str, *words: Any) -> str | None:
        """What the program of a loader printed; None if it failed, and a peer is left out from then on."""
        case = CASES[name]
        environment = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        if self.chosen.templar:
            environment["TEMPLAR"] = str(self.chosen.templar.resolve())
        python = self.python if self.packages[case.loader] else sys.executable
        command = [python, BENCHMARKS / "loading_peers.py", case.loader, *words]
        try:
            return run(command, env=environment, errors=False, limit_s=600).output
        except RuntimeError as error:
            if not case.is_peer:
                raise
            self.left_out[name] = str(error).strip().splitlines()[-1]
            print(f"{name} is left out: {self.left_out[name]}", file=sys.stderr)
            return None

    def measure(self, name: str, shape: Shape, *, is_cold: bool = False, **how: Any) -> dict[str, Any] | None:
        """One process; the files are in the page cache, or not."""
        if name in self.left_out:
            return None
        folder = self.files(name, shape[0])
        drop(folder) if is_cold else warm(folder)
        job = Job(*shape, options=CASES[name].options, **how)
        done = self.call(name, "measure", folder, json.dumps(asdict(job)))
        return None if done is None else json.loads(done.splitlines()[-1])

    def speed(self, shape: Shape, rounds: int) -> list[dict[str, Any]]:
        """A row for each loader that was there in all rounds, the fastest first."""
        seconds = self.chosen.seconds
        calls = {name: partial(self.measure, name, shape, seconds=seconds) for name in self.there()}
        found = {
            name: [one["tokens_s"] / 1e6 for one in taken if one]
            for name, taken in in_turns(calls, rounds).items()
            if name not in self.left_out
        }
        facts = {"seq_len": shape[0], "batch_size": shape[1]}
        rows: list[dict[str, Any]] = [
            facts | {"loader": name, "million_tokens_s": summary(speeds),
                     "ours_over_this": ratios(found[OURS], speeds)}
            for name, speeds in found.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -row["million_tokens_s"]["median"])

    def memory(self, name: str, shape: Shape, label: str) -> dict[str, Any] | None:
        """Growth over many batches, page cache warm."""
        count = self.chosen.memory_batches
        found = self.measure(name, shape, warm_up=100, batches=count, batches_at_least=count)
        if found is None:
            return None
        growth = {key: round(value / MB, 2) for key, value in found["growth_bytes"].items()}
        growth["peak of VmRSS"] = round(found["peak_growth_bytes"] / MB, 2)
        return {"loader": label, "batches": found["batches"], "growth_mb": growth}

    def cold(self, name: str, shape: Shape) -> dict[str, Any] | None:
        """Bytes read from the disk for each byte of tokens."""
        found = self.measure(name, shape, is_cold=True, warm_up=1, batches=400, seconds=4.0)
        if found is None:
            return None
        useful = found["read_batches"] * shape[0] * shape[1] * 2
        return {
            "seq_len": shape[0], "batch_size": shape[1], "loader": name, "batches": found["read_batches"],
            "million_tokens_s": round(found["tokens_s"] / 1e6, 2),
            "read_over_useful": round(found["read_bytes"] / useful, 2),
        }  # fmt: skip

    def versions(self) -> dict[str, str]:
        """Versions of the peers that were measured."""
        packages = [package for case in self.there().values() if (package := self.packages[case.loader])]
        found = versions_of(self.python, packages) if packages else {}
        return found | ({"templar": commit_of(self.chosen.templar)} if self.chosen.templar else {})


def against_floor(path: Path, shape: Shape, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Ours and the floor in this process: the same windows, in the same order and state of their pages."""
    import torch

    from data_loading import StreamingDataset

    torch.set_num_threads(1)
    rows = []
    for reader, state in (
        ("mmap", "mapped"), ("mmap", "cached"), ("mmap", "cold"), ("pread", "cached"), ("pread", "cold")
    ):  # fmt: skip
        against = AgainstFloor(StreamingDataset(path, seq_len=shape[0], reader=reader), shape[1])
        batches = 400 if state == "cold" else against.batches_in(seconds)
        count = 1 if state == "cold" else rounds
        pairs = [against.round(state, batches, ours_first=number % 2 == 0) for number in range(count)]
        ours, floor = pairs[0]
        useful = ours.batches * shape[0] * shape[1] * 2
        rows.append({
            "seq_len": shape[0], "batch_size": shape[1], "reader": reader, "pages": state,
            "batches": ours.batches,
            "ours_us": summary([pair.ours.seconds / pair.ours.batches * 1e6 for pair in pairs]),
            "floor_us": summary([pair.floor.seconds / pair.floor.batches * 1e6 for pair in pairs]),
            "share_of_floor": summary([pair.share for pair in pairs]),
            "share_of_floor_by_cpu": summary([pair.share_by_cpu for pair in pairs]),
            "ours_read_over_useful": round(ours.read_bytes / useful, 2),
            "floor_read_over_useful": round(floor.read_bytes / useful, 2),
        })  # fmt: skip
    return rows


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Goals of speed, memory and reads."""
    made = []
    for shape, least in WANTED.items():
        title = f"{shape[0]} x {shape[1]}"
        rows = [row for row in found["speed"] if row["seq_len"] == shape[0]]
        over = {row["loader"]: row["ours_over_this"]["median"] for row in rows}
        best = min((ratio for name, ratio in over.items() if CASES[name].is_peer), default=None)
        if best is not None and "best peer" in least:
            made.append(goal(f"{title}, ours / the best peer", best, at_least=least["best peer"]))
        made.append(goal(f"{title}, ours / {REPLACED}", over[REPLACED], at_least=least[REPLACED]))
        for row in found["against_floor"]:
            if (row["seq_len"], row["reader"]) == (shape[0], "mmap"):
                what = f"{title}, share of the floor, {row['pages']}"
                made.append(goal(what, row["share_of_floor"]["median"], at_least=least["floor"]))
    growth = {row["loader"]: row["growth_mb"] for row in found["memory"]}
    made.append(goal("RSS of pread", growth[PREAD]["VmRSS"], at_most=8, unit="MB"))
    made.append(goal("RssAnon of pread", growth[PREAD]["RssAnon"], at_most=0.5, unit="MB"))
    for name, one in growth.items():
        if name.startswith(BOUNDED):
            bound = BOUND_BYTES / MB
            made.append(goal(f"highest RSS, {name}", one["peak of VmRSS"], at_most=bound, unit="MB"))
    for row in found["cold"]:
        if row["loader"] in (OURS, PREAD) and row["seq_len"] == 1024:
            what = f"1024 x {row['batch_size']}, cold, read / useful, {row['loader']}"
            made.append(goal(what, row["read_over_useful"], at_most=4))
    return made


@benchmark(
    folder=Path, templar=Path, tokens=(29, 20), rounds=(3, 1), seconds=(0.6, 0.05), memory_batches=(2000, 30)
)
def measured(chosen: Any) -> Any:
    bench = Bench(chosen)
    speed = [row for shape in SHAPES for row in bench.speed(shape, chosen.rounds)]
    memory = [bench.memory(name, SHAPES[0], name) for name in bench.there()]
    memory.append(bench.memory(BOUNDED, SHAPES[1], f"{BOUNDED}, {SHAPES[1][0]} x {SHAPES[1][1]}"))
    cold = [bench.cold(name, SHAPES[0]) for name in bench.there()]
    path = bench.files(OURS, 0) / "tokens.npy"
    warm(path.parent)
    how = (max(chosen.rounds, 5), chosen.seconds / 2)
    pairs = [row for shape in SHAPES for row in against_floor(path, shape, *how)]
    found: dict[str, Any] = {
        "tokens": 1 << chosen.tokens, "rounds": chosen.rounds, "memory_batches": chosen.memory_batches,
        "bound_bytes": BOUND_BYTES, "peers": bench.versions(), "left_out": bench.left_out, "speed": speed,
        "memory": [row for row in memory if row], "cold": [row for row in cold if row],
        "against_floor": pairs,
    }  # fmt: skip
    return found | {"goals": goals(found)}
