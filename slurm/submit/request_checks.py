"""Checks of a command before anything is planned or submitted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from conf import Config
from conf.command_line.request import SLURM_LAUNCHER, Launcher
from conf.composing.overrides import Setting
from conf.composing.run_identity import makes_another_run
from conf.keys import keys
from conf.suggestions import or_list
from experiment_utils.errors import Problem, UserError
from slurm.launch.code_snapshot import NO_PATHSEP

_SHARED = ("wait", "then", "notify")
_WEBHOOK, _MAIL = re.compile(r"https?://\S+$"), re.compile(r"[^@\s/:]+@[^@\s/:]+$")


def check_request(configs: Sequence[Config], launcher: Launcher, *, is_open: bool) -> list[Problem]:
    """Problems of the configurations alone, before data are looked at.

    Args:
        is_open: Whether the sweeper chooses runs by the results of earlier ones.
    """
    first, problems = configs[0], list[Problem]()

    def add(where: str, what: str) -> None:
        problems.append(Problem(where, what))

    on_slurm = launcher.target == SLURM_LAUNCHER
    for name in _SHARED:
        if len({getattr(config, name) for config in configs}) > 1:
            add(name, "cannot be swept: it is for the sweep as a whole")
    if is_open and not first.wait:
        add("wait", "this sweeper chooses runs by the results of earlier ones: set wait=true")
    most = min(config.slurm.confirm for config in configs)
    if on_slurm and len(configs) > most:
        what = (
            f"{len(configs):,} runs would be submitted; more than {most:,} need slurm.confirm={len(configs)}"
        )
        add("slurm.confirm", what)
    for folder in sorted({str(Path(config.runs_dir).expanduser().absolute()) for config in configs}):
        if on_slurm and re.search(r"[%\\\n]", folder):
            add(
                "runs_dir",
                f"{folder}: Slurm replaces % and \\ in names of output files. Choose another folder",
            )
        if os.pathsep in folder:
            add("runs_dir", f"{folder}: {NO_PATHSEP}")
    notify = first.notify
    if notify is not None and not _WEBHOOK.match(notify) and not _MAIL.match(notify):
        example = "https://hooks.example.org/..."
        add("notify", f"expected a mail address or a webhook such as {example}, got {notify}")
    elif notify is not None and _MAIL.match(notify) and not on_slurm:
        add("notify", "only Slurm sends mail; here give a webhook: notify=https://...")
    return problems


def check_swept(settings: Mapping[str, Setting]) -> None:
    """Raises UserError for swept keys that make no runs of their own: all but one value would be lost."""
    wrong = []
    for key, setting in settings.items():
        if len(setting.values) < 2 or makes_another_run(key):
            continue
        values = [value.text for value in setting.values]
        what = f"cannot be swept: {or_list(values, 'and')} make one and the same run. Give one value"
        known = keys().get(key)
        if known is not None and known.is_text:
            one = f'{key}="{",".join(values)}"'
            what += f"; one text with commas is typed as {shlex.quote(one)}"
        wrong.append(Problem(key, what))
    if wrong:
        raise UserError(*wrong)


def check_waited_for(configs: Sequence[Config]) -> None:
    """Check runs that the command itself waits for. Raises UserError for keys that need a submission."""
    where = next((name for name in ("then", "notify") for one in configs if getattr(one, name)), None)
    if where is not None:
        what = (
            "is done when submitted runs have ended, and this command itself waits for its runs. Submit "
            "them: hydra/launcher=slurm, or in the background of this machine: hydra/launcher=local "
            "hydra.launcher.detach=true"
        )
        raise UserError(Problem(where, what))


def check_clean(configs: Sequence[Config], root: Path) -> list[Problem]:
    """Changes of the checkout that are in no commit, if `slurm.require_clean=true`."""
    if not any(config.slurm.require_clean for config in configs):
        return []
    command = ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=normal"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        return [
            Problem("slurm.require_clean", f"{root} is no git tree, so the code of the runs is not known")
        ]
    if not lines:
        return []
    listed = ", ".join(line[3:] for line in lines[:5]) + (
        f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    )
    is_new = any(line.startswith("??") for line in lines)
    commit = "git add --all && git commit, or name what is not code in .gitignore"
    fix = commit if is_new else "git commit -a"
    what = f"the tree has changes that are in no commit: {listed}. Commit them: {fix}"
    return [Problem("slurm.require_clean", what)]
