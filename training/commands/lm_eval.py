"""Measure tasks of EleutherAI's lm-eval on the export of a trained model, and store the results.

lm-eval is no dependency: it runs as `python -m lm_eval` in its own process, with the arguments that its
interface documents (docs/interface.md there), and the file that it writes below --output_path is read.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from training.attempt.run_files import RUN_FOLDER_VERSION
from training.run.load_run import SavedRun

MODULE = "lm_eval"
STDERR = 2


def measure(saved: SavedRun, options: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Export the model if needed, run lm-eval on it, and store its results in the folder of the run.

    The output of lm-eval goes to stderr.

    Args:
        options: tasks, num_fewshot, limit, batch_size and device by their names in lm-eval; None is left out.

    Returns:
        The file, and its results of these tasks: task -> metrics.

    Raises:
        UserError: lm-eval is not installed, no model of transformers computes this one, or lm-eval fails.
        OSError: the results cannot be written.
    """
    if importlib.util.find_spec(MODULE) is None:
        raise UserError(
            f"lm-eval is not installed in this environment: {sys.executable} -m pip install 'lm-eval[hf]'. "
            "Or export the model and run it elsewhere: python -m training export "
            f"{shlex.quote(str(saved.folder))}"
        )
    model = _exported(saved)
    if "," in str(model):
        raise UserError(
            f"{model}: lm-eval divides its arguments at commas. Move the run where its path has none"
        )
    with tempfile.TemporaryDirectory(prefix="lm-eval-") as temporary:
        command = [
            *(sys.executable, "-m", MODULE, "--model", "hf"),
            *("--model_args", f"pretrained={model},dtype=float32"),
            *(
                word
                for name, value in options.items()
                if value is not None
                for word in (f"--{name}", str(value))
            ),
            *("--output_path", temporary),
        ]
        ended = subprocess.run(command, stdout=STDERR, check=False)
        found = _results_below(Path(temporary))
    typed = shlex.join(command[1:-2])
    if ended.returncode:
        raise UserError(f"lm-eval ended with exit status {ended.returncode}; what it said is above: {typed}")
    if found is None:
        raise UserError(f"lm-eval left no results, and what it said is above: {typed}")
    return _kept(saved, options, found)


def _exported(saved: SavedRun) -> Path:
    """The export of this checkpoint in the folder of the run, made if it does not exist."""
    from training.export.hugging_face import export, exported_from

    output = saved.folder / f"hf-step-{saved.step:08d}"
    if not output.exists():
        export(saved, output)
    elif not exported_from(output, saved):
        raise UserError(f"{output} is no export of this run: remove it, and type the command again")
    return output.resolve()


def _results_below(folder: Path) -> dict[str, Any] | None:
    """Content of the one file with results, which lm-eval names after model and time."""
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and isinstance(content.get("results"), dict):
            return content
    return None


def _kept(saved: SavedRun, options: Mapping[str, Any], found: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Add the results to those of other tasks of the same step; they replace those of the same task."""
    path = saved.folder / f"lm-eval-step-{saved.step:08d}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"results": {}, "how": {}}
    how = {name: options[name] for name in ("num_fewshot", "limit")} | {
        "lm_eval": found.get("lm_eval_version")
    }
    record = {
        "version": RUN_FOLDER_VERSION,
        "identity": saved.facts.get("identity"),
        "step": saved.step,
        "results": {**before["results"], **found["results"]},
        "how": {**before["how"], **dict.fromkeys(found["results"], how)},
    }
    atomic_files.write_json(path, record)
    return path, found["results"]


def words(results: dict[str, Any]) -> list[str]:
    """One line for each number of each task."""
    lines = []
    for task, metrics in results.items():
        for name, value in metrics.items():
            if not isinstance(value, int | float) or "_stderr" in name:
                continue
            metric, _, kind = name.partition(",")
            error = metrics.get(f"{metric}_stderr,{kind}")
            more = f" ± {error:.4f}" if isinstance(error, int | float) else ""
            lines.append(f"{task:<24}{metric:<16}{value:>10.4f}{more}")
    return lines
