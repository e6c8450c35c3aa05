"""What is refused before anything is submitted, all of it at once."""

from __future__ import annotations

import os
import re
import shlex
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
    """What the configurations alone tell, before data are looked at.

    is_open: the sweeper chooses the runs as it goes, by the results of earlier ones.
    """
    first, problems = configs[0], list[Problem]()
    on_slurm = launcher.target == SLURM_LAUNCHER
    for name in _SHARED:
        if len({getattr(config, name) for config in configs}) > 1:
            problems.append(Problem(name, "cannot be swept: it is for the sweep as a whole"))
    if is_open and not first.wait:
        problems.append(
            Problem("wait", "this sweeper chooses runs by the results of earlier ones: set wait=true")
        )
    most = min(config.slurm.confirm for config in configs)
    if on_slurm and len(configs) > most:
        problems.append(
            Problem(
                "slurm.confirm",
                f"{len(configs):,} runs would be submitted, and more than {most:,} only when asked for: "
                f"slurm.confirm={len(configs)}",
            )
        )
    for folder in sorted({str(Path(config.runs_dir).expanduser().absolute()) for config in configs}):
        if on_slurm and re.search(r"[%\\\n]", folder):
            problems.append(
                Problem(
                    "runs_dir",
                    f"{folder}: Slurm reads % and \\ in the names of its output files as signs of its own: "
                    "choose a folder without them",
                )
            )
        if os.pathsep in folder:
            problems.append(Problem("runs_dir", f"{folder}: {NO_PATHSEP}"))
    notify = first.notify
    if notify is not None and not _WEBHOOK.match(notify) and not _MAIL.match(notify):
        what = f"expected a mail address or a webhook such as https://hooks.example.org/..., got {notify}"
        problems.append(Problem("notify", what))
    elif notify is not None and _MAIL.match(notify) and not on_slurm:
        problems.append(Problem("notify", "only Slurm sends mail; here give a webhook: notify=https://..."))
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
    """Of runs that the command itself waits for: raises UserError for what only a submission can do."""
    if any(config.then is not None or config.notify is not None for config in configs):
        where = "then" if any(config.then is not None for config in configs) else "notify"
        what = (
            "is done when submitted runs have ended, and this command itself waits for its runs. Submit "
            "them: hydra/launcher=slurm, or in the background of this machine: hydra/launcher=local "
            "hydra.launcher.detach=true"
        )
        raise UserError(Problem(where, what))


def check_clean(configs: Sequence[Config], root: Path) -> list[Problem]:
    """Where `slurm.require_clean=true` and the checkout has changes."""
    if not any(config.slurm.require_clean for config in configs):
        return []
    import subprocess

    asked = ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=normal"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode != 0:
        what = f"{root} is no git tree, so nobody can tell what code would run"
    elif done.stdout.strip():
        changed = [line[3:] for line in done.stdout.splitlines()]
        listed = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        is_new = any(line.startswith("??") for line in done.stdout.splitlines())
        commit = "git add --all && git commit, or name what is not code in .gitignore"
        what = (
            f"the tree has changes that are in no commit: {listed}. Commit them: "
            f"{commit if is_new else 'git commit -a'}"
        )
    else:
        return []
    return [Problem("slurm.require_clean", what)]
