"""Measure how tokenizing gets faster with the number of tasks, by the CPU time of the slowest task.

Tasks run one after the other here. On machines of their own they take the time of the slowest, which makes
the set too if it is the last. The time of a task with a tiny text (interpreter, tokenizer, comparison of the
engine) is measured too. The texts are Python's standard library, repeated, in files of 8 MB, the tokenizer a
byte-level BPE trained on them.

    python benchmarks/tokenizing_tasks.py    # about 2 minutes
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, ROOT, benchmark, goal, in_turns
from benchmarks.processes import run
from data_loading.pretokenizer.sources.stdlib import StdlibSource

COMMAND = [sys.executable, ROOT / "pretokenize_dataset.py"]
FLAGS = ["--tokenizer", "trained.bpe4000", "--tokens-per-shard", "1M", "--output", "set", "--workers", "0"]


def slowest_cpu_s(folder: Path, tasks: int) -> float:
    """CPU time of the slowest of the tasks that make the set; 0 tasks: of one with a tiny text."""
    command, tasks = [*COMMAND, "texts" if tasks else "tiny.txt", *FLAGS, "--block-range"], max(1, tasks)
    found = [run([*command, f"{number}/{tasks}"], cwd=folder).cpu_s for number in range(tasks)]
    shutil.rmtree(folder / "set")
    return max(found)


@benchmark(files=(16, 4), tasks=([1, 2, 4, 8], [1, 2]), rounds=(1, 1))
def measured(chosen: Any) -> Any:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = b"".join(chunk.data for chunk in StdlibSource().chunks())
        text = (text * (1 + chosen.files * 8 * MB // len(text)))[: chosen.files * 8 * MB]
        (folder / "texts").mkdir()
        for number in range(chosen.files):
            part = text[number * 8 * MB : (number + 1) * 8 * MB].decode(errors="ignore")
            (folder / "texts" / f"{number:03}.txt").write_text(part)
        run([*COMMAND, "texts/000.txt", "--train-tokenizer", "4000", "--output", "trained.npy"], cwd=folder)
        (folder / "tiny.txt").write_bytes(text[: MB // 4])
        cases = {tasks: partial(slowest_cpu_s, folder, tasks) for tasks in (0, *chosen.tasks)}
        found = {tasks: statistics.median(s) for tasks, s in in_turns(cases, chosen.rounds).items()}
    start, most = found.pop(0), max(found)
    growth = found[min(found)] / found[most]
    return {
        "text_bytes": len(text),
        "start_cpu_s": round(start, 2),
        "slowest_task_cpu_s": {str(tasks): round(seconds, 2) for tasks, seconds in found.items()},
        "mb_per_cpu_s": {str(tasks): round(len(text) / MB / s, 1) for tasks, s in found.items()},
        "goals": [goal(f"{most} tasks on {len(text) // MB} MB, as fast as 1", growth, at_least=2)],
    }
