"""`python -m data_loading bench SET`: how fast this machine reads a set, beside the floor."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.commands.against_floor import AgainstFloor, Pair
    from data_loading.data import Data


EXAMPLES = """\
examples:
  python -m data_loading bench Datasets/c4
  python -m data_loading bench Datasets/c4 --seq-len 128 --batch-size 256 --json

The floor is `view[starts]` of a strided view of the file and astype(int64), on the same windows in the same
order: what NumPy must do at least. mapped: the pages of the windows are mapped already, as in a second epoch
that fits in memory. cached: they are in the page cache, as after a copy. cold: on the disk alone; for that,
the set's files are taken out of the page cache (nothing is written, other programs only read them again).
share: of the floor's speed, as rounds of both alternate; by CPU: by processor time, which other programs on
the machine do not take.

Exit status: 0 measured, 2 there is no set, or none that makes one batch.
"""
_COLD_BATCHES = 100
_STEPS = 6
_LARGEST_COPY_BYTES, _LARGEST_COPY_SHARE = 4 << 30, 0.25
"""Of a set that is copied into memory to measure that reader: more takes long."""


def add_parser(subparsers: Any) -> None:
    """The command's own parser, among those of the others."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="how fast this machine reads a set: floor, each reader, warm and cold",
        description="Measure how fast batches of a set are read on this machine, with each reader, beside "
        "the floor. It takes less than a minute.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SET", help="X.npy, a folder of shards, X.txt with X.npy, a URI")
    parser.add_argument("--seq-len", type=int, default=1024, metavar="N", help="tokens of a window (1024)")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="windows of a batch (32)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="about how long to measure, 1 to 600 (20)"
    )
    parser.add_argument("--json", action="store_true", help="one object of JSON instead of the table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print. Raises UserError."""
    if arguments.batch_size < 1:
        raise UserError(
            f"--batch-size {arguments.batch_size}: expected at least 1", code="batch-size-invalid"
        )
    if not 1 <= arguments.seconds <= 600:
        raise UserError(f"--seconds {arguments.seconds:g}: expected 1 to 600", code="seconds-invalid")
    found = bench(arguments.source, arguments.seq_len, arguments.batch_size, arguments.seconds)
    print(json.dumps(found, indent=2) if arguments.json else page(found))
    return 0


def bench(source: str, seq_len: int, batch_size: int, seconds: float) -> dict[str, Any]:
    """What the page is made from: rates in tokens a second, bytes a batch.

    Raises:
        UserError: no such set, or not one window in it.
        NotTokenized: there is only a text.
    """
    import torch

    from data_loading.commands.against_floor import AgainstFloor
    from data_loading.opening import open_for_reading
    from data_loading.streaming import StreamingDataset

    data = open_for_reading(source, None)
    chosen = StreamingDataset(data, seq_len=seq_len)
    if batch_size > len(chosen):
        raise UserError(
            f"--batch-size {batch_size}: {source} has {len(chosen):,} windows of {seq_len}",
            code="batch-larger-than-split",
        )
    rows: list[dict[str, Any]] = []
    readers, left_out = _readers(data)
    no_floor, threads = "", torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for reader in readers:
            against = AgainstFloor(StreamingDataset(data, seq_len=seq_len, reader=reader), batch_size)
            no_floor = against.no_floor
            states = ["mapped", "cached"] if reader == "mmap" else ["cached"]
            if against.has_files and reader != "memory":
                states.append("cold")
            rows += _measured(against, reader, states, seconds / len(readers))
    finally:
        torch.set_num_threads(threads)
    return {
        "source": source,
        "tokens": data.tokens("train"),
        "dtype": data.train.tokens.dtype.name,
        "file_bytes": data.train.file_bytes,
        "files": _files(data),
        "windows": len(chosen),
        "seq_len": seq_len,
        "batch_size": batch_size,
        "auto": chosen.reader,
        "no_floor": no_floor,
        "left_out": left_out,
        "rows": rows,
    }


def _measured(against: AgainstFloor, reader: str, states: list[str], seconds: float) -> list[dict[str, Any]]:
    from data_loading.commands.against_floor import median

    rows = []
    block_s = seconds / len(states) / (_STEPS * 3)
    batches = against.batches_in(block_s)
    for state in states:
        pairs: list[Pair] = []
        until = time.monotonic() + seconds / len(states)
        count = min(batches, _COLD_BATCHES) if state == "cold" else batches
        while not pairs or (state != "cold" and time.monotonic() < until):
            pairs.append(against.round(state, count, ours_first=len(pairs) % 2 == 0))
        middle = median(pairs)
        tokens, useful = against.batch_tokens, against.batch_tokens * against.token_bytes
        read = {who: middle[f"{who}_read_bytes"] for who in ("ours", "floor")}
        was_cold = state != "cold" or any(read.values())
        rows.append(
            {
                "reader": reader,
                "state": (state if was_cold else "not cold") if against.has_files else "no file",
                "rounds": len(pairs),
                "batches": pairs[0].batches,
                "ours_tokens_s": _rate(tokens, middle["ours_s"]),
                "floor_tokens_s": _rate(tokens, middle["floor_s"]),
                "share_of_floor": middle["share"],
                "share_of_floor_by_cpu": middle["share_by_cpu"],
                "ours_read_over_useful": None if read["ours"] is None else read["ours"] / useful,
                "floor_read_over_useful": None if read["floor"] is None else read["floor"] / useful,
            }
        )
    return rows


def _rate(tokens: int, seconds: float | None) -> float | None:
    return None if seconds is None else tokens / seconds


def _readers(data: Data) -> tuple[list[str], dict[str, str]]:
    """Those that can serve this set here, and why others are left out."""
    from memory import format_bytes, snapshot

    size, free = data.train.file_bytes, snapshot().host.available_bytes or 0
    if _files(data) == 0:
        return ["auto"], {}
    most = min(_LARGEST_COPY_BYTES, int(_LARGEST_COPY_SHARE * free))
    if size > most:
        limit = f"here that is done up to {format_bytes(most)}"
        why = f"not measured: it copies the set, {format_bytes(size)}; {limit}"
        return ["mmap", "pread"], {"memory": why}
    return ["mmap", "pread", "memory"], {}


def _files(data: Data) -> int:
    try:
        return len({path for path in data.train.extents.paths if path is not None})
    except TypeError:  # tokens that lie in no file
        return 0


def page(found: dict[str, Any]) -> str:
    """The result for people."""
    files = found["files"]
    where = f"{found['file_bytes'] / 1e6:,.1f} MB in {files} file{'s' * (files != 1)}" if files else "no file"
    lines = [
        f"{Path(found['source']).name or found['source']}: train split of {found['tokens']:,} tokens "
        f"({found['dtype']}, {where}), {found['windows']:,} windows of {found['seq_len']:,}, batches of "
        f"{found['batch_size']:,}",
        f"auto: {found['auto']}",
        "",
        f"{'reader':8} {'pages':9} {'Mtok/s':>8} {'floor':>8} {'share':>7} {'by CPU':>7} "
        f"{'read / useful':>14} {'the floor':>10}",
    ]
    for row in found["rows"]:
        share, by_cpu = (_percent(row[name]) for name in ("share_of_floor", "share_of_floor_by_cpu"))
        ours, floor = _mtok(row["ours_tokens_s"]), _mtok(row["floor_tokens_s"])
        lines.append(
            f"{row['reader']:8} {row['state']:9} {ours:>8} {floor:>8} {share:>7} {by_cpu:>7} "
            f"{_times(row, 'ours'):>14} {_times(row, 'floor'):>10}"
        )
    lines += [f"{name}: {why}" for name, why in found["left_out"].items()]
    if found["no_floor"]:
        lines.append(f"no floor: {found['no_floor']}")
    if any(row["state"] == "not cold" for row in found["rows"]):
        lines.append(
            "not cold: nothing was read from a disk. The files are in memory (tmpfs), or another process "
            "maps them and keeps them there"
        )
    return "\n".join(line.rstrip() for line in lines)


def _mtok(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:,.1f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _times(row: dict[str, Any], who: str) -> str:
    value = row[f"{who}_read_over_useful"]
    return "" if value is None or row["state"] != "cold" else f"{value:.1f}"
