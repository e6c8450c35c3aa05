"""Measure how soon `python -m analysis table` shows 1,000 run folders of 1,000 rows each, cold and warm.

Folders as runs leave them, all done. Cold: no index. Warm: with the index that the call before left. Peers,
in the same rounds, each the shortest way to the same last rows: pandas over glob (every metrics.csv),
pandas reading only the columns step and val_loss, and TensorBoard's files through tbparse.

    python benchmarks/analysis_table.py
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from analysis.reading.index import NAME
from benchmarks.harness import benchmark, in_turns, summaries
from benchmarks.processes import peers_python, run, versions_of
from conf import Config
from conf.composing.check import to_plain
from training.report.metrics import COLUMNS

GOALS = {"cold": 2.0, "warm": 0.5}
PANDAS = """
import glob, pandas, sys
paths = sorted(glob.glob(sys.argv[1] + "/*/metrics.csv"))
rows = [pandas.read_csv(path{columns}).ffill().iloc[-1].rename(path) for path in paths]
pandas.DataFrame(rows)[["step", "val_loss"]].to_csv(sys.argv[2])
print(len(rows), "runs")
"""
TENSORBOARD_WRITE = """
import sys, csv, glob, os
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for path in sorted(glob.glob(sys.argv[1] + "/*/metrics.csv")):
    writer = EventFileWriter(os.path.dirname(path).replace(sys.argv[1], sys.argv[2]))
    for row in csv.DictReader(open(path)):
        cells = [("train_loss", row["train_loss"]), ("val_loss", row["val_loss"]), ("lr", row["lr"])]
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in cells if value]
        writer.add_event(Event(step=int(row["step"]), summary=Summary(value=values)))
    writer.close()
"""
TENSORBOARD_READ = """
import sys
from tbparse import SummaryReader
table = SummaryReader(sys.argv[1], extra_columns={"dir_name"}).scalars
print(table.groupby(["dir_name", "tag"]).last().index.get_level_values("dir_name").nunique(), "runs")
"""


def make_study(study: Path, runs: int, rows: int) -> None:
    """Folders of runs that are done, old enough to be remembered by an index."""
    generator = random.Random(0)
    for number in range(runs):
        identity, lr = f"{generator.getrandbits(256):064x}", 0.001 * (1 + number % 10)
        folder = study / f"32d-lr{lr:g}-seed{number}-{identity[:8]}"
        folder.mkdir(parents=True)
        config = to_plain(Config())
        config["seed"], config["optimizer"]["lr"] = number, lr
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        table, evals, loss = [",".join(COLUMNS)], [], 0.0
        for step in range(1, rows + 1):
            loss = 2 + 3.5 * math.exp(-step / 200) + generator.gauss(0, 0.03)
            is_evaluated = step % max(1, rows // 10) == 0
            val_loss = f"{loss:.6f}" if is_evaluated else ""
            table.append(
                f"{step},{step * 4096},{loss:.6f},{val_loss},0.003,{generator.random():.6f},"
                f"{1.41e9 * step:g},{0.1234 * step:.4f},{33000 + generator.random() * 100:.1f},"
            )
            if is_evaluated:
                row = {"version": 1, "step": step, "tokens": step * 4096, "source": "val", "loss": loss}
                more = {"perplexity": math.exp(loss), "bits_per_byte": None, "eval_tokens": 99968}
                evals.append(json.dumps(row | more))
        (folder / "metrics.csv").write_text("\n".join(table) + "\n")
        (folder / "evals.jsonl").write_text("\n".join(evals) + "\n")
        status = {"version": 1, "state": "done", "stage": "finish", "step": rows, "total_steps": rows}
        (folder / "status.json").write_text(json.dumps(status))
        facts = {
            "version": 1, "identity": identity, "parameters": 41152, "non_embedding": 32768, "steps": rows,
            "tokens": rows * 4096, "batch_tokens": 4096, "config": config, "attempts": [{"attempt": 1}],
            "data": {"fingerprint": "72" * 32, "tokenizer": "bytes"}, "results": {"val_loss": loss},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(facts, indent=2))
        peaks = {"peak_unreclaimable_bytes": 300 << 20, "limit_bytes": 1 << 30}
        (folder / "outcome.json").write_text(json.dumps({"version": 1, "exit_code": 0, **peaks}))
    time.sleep(2.5)  # files that were written just now are not remembered


def seconds_of_command(command: list[Any], says: str = "", without: Path | None = None) -> float:
    """Wall time of a process that must print `says`. without: a file to remove first."""
    if without is not None:
        without.unlink(missing_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    done = run(command)
    assert says in done.output, done.output[-500:]
    return done.wall_s


@benchmark(rounds=(5, 1), runs=(1000, 20), rows=(1000, 50), without_peers=bool)
def measured(chosen: Any) -> Any:
    with tempfile.TemporaryDirectory() as place:
        study, index, out = Path(place) / "sweep", Path(place) / "sweep" / NAME, f"{place}/pandas.csv"
        make_study(study, chosen.runs, chosen.rows)
        ours = [sys.executable, "-m", "analysis", "table", study, "--csv", "-o", f"{place}/table.csv"]
        some = PANDAS.format(columns=", usecols=['step', 'val_loss']")
        peers: dict[str, list[Any]] = {
            "pandas over glob": [sys.executable, "-c", PANDAS.format(columns=""), study, out],
            "pandas, two columns": [sys.executable, "-c", some, study, out],
        }
        versions = versions_of(Path(sys.executable), ["pandas"])
        if not (chosen.without_peers or chosen.quick):
            python = peers_python("analysis_peers.txt")
            run([python, "-c", TENSORBOARD_WRITE, study, f"{place}/events"])
            peers["tbparse"] = [python, "-c", TENSORBOARD_READ, f"{place}/events"]
            versions |= versions_of(python, ["tbparse", "tensorboard", "protobuf"])
        cases = {
            name: partial(seconds_of_command, command, f"{chosen.runs} runs")
            for name, command in peers.items()
        }
        seconds_of_command(ours, without=index)
        lines = (Path(place) / "table.csv").read_text().splitlines()
        assert len(lines) == chosen.runs + 1
        cases |= {
            "cold": partial(seconds_of_command, ours, without=index),
            "warm": partial(seconds_of_command, ours),
        }
        found = in_turns(cases, chosen.rounds)  # whatever the order, a cold call leaves the index
        index_bytes = index.stat().st_size if index.exists() else 0  # a small study has none
    seconds = summaries({name: found[name] for name in ("cold", "warm", *peers)})
    facts = {"peers": versions, "runs": chosen.runs, "rows": chosen.rows, "goals_s": GOALS}
    return facts | {"index_bytes": index_bytes, "seconds": seconds}
