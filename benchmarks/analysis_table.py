"""How soon `python -m analysis table` tells of 1,000 run folders of 1,000 rows each, cold and warm.

Folders as runs leave them, made with the room's own writers of rows: all done. Cold: no index. Warm: with the
index that the call before left. Each round is a process of its own, timed from outside, page cache warm.
Peers, in the same rounds, each the shortest way to the same last rows: pandas over glob (every metrics.csv),
pandas reading only the columns step and val_loss, and TensorBoard's files through tbparse. They are installed
into benchmarks/.analysis-peers-venv as analysis_peers.txt pins them; --peers names another interpreter.

    python benchmarks/analysis_table.py [--rounds 5] [--runs 1000] [--rows 1000] [--peers PYTHON] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from analysis.reading.index import NAME
from benchmarks.environment import save, summary
from benchmarks.tokenizing_parts import peers_venv
from conf import Config
from conf.check import to_plain
from training.metrics import COLUMNS

REQUIREMENTS = ROOT / "benchmarks" / "analysis_peers.txt"
VENV = ROOT / "benchmarks" / ".analysis-peers-venv"
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
        told = [("train_loss", row["train_loss"]), ("val_loss", row["val_loss"]), ("lr", row["lr"])]
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in told if value]
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
    """The folders."""
    generator = random.Random(0)
    for number in range(runs):
        identity = f"{generator.getrandbits(256):064x}"
        folder = study / f"32d-lr{0.001 * (1 + number % 10):g}-seed{number}-{identity[:8]}"
        folder.mkdir(parents=True)
        config = to_plain(Config())
        config["seed"], config["optimizer"]["lr"] = number, 0.001 * (1 + number % 10)
        import yaml

        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        table, evals, loss = [",".join(COLUMNS)], [], 0.0
        for step in range(1, rows + 1):
            loss = 2 + 3.5 * math.exp(-step / 200) + generator.gauss(0, 0.03)
            is_evaluated = step % (rows // 10) == 0
            val_loss = f"{loss:.6f}" if is_evaluated else ""
            table.append(
                f"{step},{step * 4096},{loss:.6f},{val_loss},0.003,{generator.random():.6f},"
                f"{1.41e9 * step:g},{0.1234 * step:.4f},{33000 + generator.random() * 100:.1f},"
            )
            if is_evaluated:
                told = {"version": 1, "step": step, "tokens": step * 4096, "source": "val", "loss": loss}
                more = {"perplexity": math.exp(loss), "bits_per_byte": None, "eval_tokens": 99968}
                evals.append(json.dumps(told | more))
        (folder / "metrics.csv").write_text("\n".join(table) + "\n")
        (folder / "evals.jsonl").write_text("\n".join(evals) + "\n")
        status = {"version": 1, "state": "done", "stage": "finish", "step": rows, "total_steps": rows}
        (folder / "status.json").write_text(json.dumps(status))
        told = {
            "version": 1, "identity": identity, "parameters": 41152, "non_embedding": 32768, "steps": rows,
            "tokens": rows * 4096, "batch_tokens": 4096, "config": config, "attempts": [{"attempt": 1}],
            "data": {"fingerprint": "72" * 32, "tokenizer": "bytes"}, "results": {"val_loss": loss},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(told, indent=2))
        ended = {"version": 1, "exit_code": 0, "peak_unreclaimable_bytes": 300 << 20, "limit_bytes": 1 << 30}
        (folder / "outcome.json").write_text(json.dumps(ended))


def timed(command: list[str], says: str = "") -> float:
    """Seconds of the whole process, which must say that."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - begun
    if done.returncode or says not in done.stdout:
        raise AssertionError(f"{command[:4]}: {done.stdout[-200:]} {done.stderr[-2000:]}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument(
        "--peers", metavar="PYTHON", type=Path, help="an interpreter with tbparse and tensorboard"
    )
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    python = options.peers or peers_venv.peers_python(VENV, REQUIREMENTS)
    with tempfile.TemporaryDirectory() as place:
        study = Path(place) / "sweep"
        make_study(study, options.runs, options.rows)
        time.sleep(2.5)  # what was written just now is not remembered
        ours = [sys.executable, "-m", "analysis", "table", str(study), "--csv", "-o", f"{place}/table.csv"]
        as_csv = f"{place}/pandas.csv"
        some = PANDAS.format(columns=", usecols=['step', 'val_loss']")
        peers = {
            "pandas over glob": [sys.executable, "-c", PANDAS.format(columns=""), str(study), as_csv],
            "pandas, two columns": [sys.executable, "-c", some, str(study), as_csv],
        }
        events = f"{place}/events"
        subprocess.run([python, "-c", TENSORBOARD_WRITE, str(study), events], check=True)
        peers["tbparse"] = [str(python), "-c", TENSORBOARD_READ, events]
        seconds: dict[str, list[float]] = {name: [] for name in ("cold", "warm", *peers)}
        for _ in range(options.rounds):
            (study / NAME).unlink(missing_ok=True)
            seconds["cold"].append(timed(ours))
            assert (study / NAME).exists()
            seconds["warm"].append(timed(ours))
            for name, command in peers.items():
                seconds[name].append(timed(command, f"{options.runs} runs"))
        told = (Path(place) / "table.csv").read_text().splitlines()
        assert len(told) == options.runs + 1
        index_bytes = (study / NAME).stat().st_size
        shutil.rmtree(study)
    names = ["pandas", "tbparse", "tensorboard", "protobuf"]
    result: dict[str, Any] = {
        "peers": peers_venv.versions(python, names), "runs": options.runs, "rows": options.rows,
        "goals_s": GOALS, "index_bytes": index_bytes,
        "seconds": {name: summary(values) for name, values in seconds.items()},
    }  # fmt: skip
    if options.no_save:
        print(json.dumps(result, indent=2))
    else:
        save("analysis_table", result)


if __name__ == "__main__":
    main()
