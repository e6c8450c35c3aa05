"""The next sensible commands after a run or a sweep, as they are typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.outcome import Outcome, diverged, time_was_over
from conf import Config, parts_table
from conf.between_keys.rules import BUDGETS
from conf.budget import resolve_budget
from conf.composing.check import check, to_plain
from conf.composing.overrides import typed_at
from conf.keys import groups
from conf.option_files import options_of
from conf.own_parts.use import use_plugins
from conf.parts_table import OPTION_GROUPS
from conf.schema import field_of
from experiment_utils.errors import UserError
from experiment_utils.json_values import is_number, leaves
from experiment_utils.run_folder import RunFolder
from slurm.records.submissions import SLURM, last_place, typed_study
from training.attempt.begin import CodeChanged, check_code
from training.attempt.plugin_copies import copies_of
from training.plan.mixture import repeats
from training.plan.run_plan import resolve

if TYPE_CHECKING:
    from conf.composing.compose import Composer

ENTRY = "python experiments.py"
_DEFAULTS = Config()
_LAUNCHER = "hydra/launcher"
_SIZE_IS_NO_MATTER = (_LAUNCHER, "seed", "seed_init", "seed_data", "runs_dir", "study.name")
_SAME, _SAME_WITH_TIME = "the same command again", "the same command with a larger training.max_time"
_SAME_WITH_CODE = "the same command with code=any, or with again=true"
_RATES = 3
"""Number of points from which a curve shows its lowest point."""
_NOT_TYPED_AGAIN = ("plan", "plugins", "tags", "notes", "wait", "then", "notify", "code")


def after_run(run: RunFolder, outcome: Outcome) -> list[tuple[str, str]]:
    """Up to three (command, what it is for)."""
    if outcome.is_done:
        return _after_success(run)
    if diverged(run):
        return [
            (
                command_of(run, {"optimizer.lr": _lr(run, 1 / 3)}),
                "a smaller learning rate: this one diverged",
            ),
            (_rates(run, 1 / 30, 1 / 10, 1 / 3), "which learning rate is best"),
        ]
    if outcome.state in ("cancelled", "timeout"):
        how = "starts it over" if run.checkpoint_step is None else "goes on where it stopped"
        return [(_SAME_WITH_TIME if time_was_over(run) else _SAME, how)]
    log = shlex.quote(str(run.path / "log.txt"))
    if outcome.state in ("running", "stalled"):
        return [(f"tail -f {log}", "what it is doing")]
    was_killed = run.status.get("state") in ("running", "oom") or outcome.state == "oom"
    return [
        *(
            [(f"python -m memory explain {shlex.quote(str(run.path))}", "why it died, and what to change")]
            if was_killed
            else []
        ),
        (f"tail -n 40 {log}", "the last lines of its log"),
        (command_of(run, {"plan": "true"}), "what this run is, and what it costs"),
    ]


def again(run: RunFolder, changes: dict[str, str], *, model: str | None = None) -> str:
    """The command of a sweep that adds to the run's study: the run with some keys changed, or other sizes.

    changes, model: as they are typed.
    """
    study = run.setting("study.name")
    kept = ({"study.name": study} if isinstance(study, str) and study else {}) | _study_of(run)
    sweep = any("," in value for value in (*changes.values(), model or ""))
    return command_of(run, kept | changes, model=model, sweep=sweep)


def budgets_around(run: RunFolder, count: int = 3) -> dict[str, str]:
    """`count` budgets from a third of the run's own on, of its kind, as changes for `again`."""
    typed = _typed(run)
    key = next((f"training.{name}" for name in BUDGETS if f"training.{name}" in typed), "training.max_steps")
    given = run.setting(key) if key in typed else None
    own = given if is_number(given) else 600
    return {key: ",".join(str(max(1, round(own * 3**power))) for power in range(-1, count - 1))}


def after_sweep(
    best: RunFolder | None, to_go_on: int, runs: Sequence[RunFolder] = ()
) -> list[tuple[str, str]]:
    """Up to three (command, what it is for).

    to_go_on: runs that the same command would go on with. runs: all of the sweep, whose seeds are taken.
    """
    found = []
    if to_go_on:
        same = _SAME_WITH_TIME if any(map(time_was_over, runs)) else _SAME
        same = _SAME_WITH_CODE if any(map(_has_other_code, runs)) else same
        found.append((same, f"runs what is not done ({to_go_on})"))
    studies = {run.path.parent for run in runs}
    if best is not None and len(studies) == 1:
        study = shlex.quote(str(studies.pop()))
        if len({run.number("optimizer.lr") for run in runs}) >= _RATES:
            found.append((f"python -m analysis best-lr {study}", "the best learning rate, with its interval"))
        else:
            found.append((f"python -m analysis report {study}", "its losses and memory on a page"))
    if best is not None:
        seed = max(map(_seed, (best, *runs)))
        again = command_of(best, {"seed": f"{seed + 1},{seed + 2}"}, sweep=True)
        found.append((again, "is the best one luck?"))
        found.append((command_of(best, model=larger_size(best, 2)), "the best at a larger size"))
    found.append((f"{ENTRY} --help", "every key and choice"))
    return found[:3]


def _has_other_code(run: RunFolder) -> bool:
    """Whether it is not done and not resumed, because its code has changed."""
    try:
        check_code(run.path, str(run.setting("code")), quiet=True)
    except CodeChanged:
        return True
    return False


def _after_success(run: RunFolder) -> list[tuple[str, str]]:
    larger = larger_size(run, 2)
    another = (
        (command_of(run, {"seed": str(_seed(run) + 1)}), "the same with another seed")
        if larger is None
        else (command_of(run, model=larger), "a larger model on the same data")
    )
    study = typed_study(run.path.parent)
    return [
        (f"python -m analysis report {study}", "its study: losses, memory, on a page"),
        another,
        (_learning_rates(run), "which learning rate is best"),
    ]


def _learning_rates(run: RunFolder) -> str:
    """The ready study where it is about this run's setup, else a sweep around the run's own rate."""
    typed = _typed(run)
    if set(typed) <= {"model", *_SIZE_IS_NO_MATTER} and typed["model"] == _DEFAULTS.model.name:
        place = {key: value for key, value in typed.items() if key in ("runs_dir", _LAUNCHER)}
        return _joined(["-m", "study=lr_sweep"], place)
    return _rates(run, 1 / 3, 1, 3)


def _rates(run: RunFolder, *factors: float) -> str:
    rates = ",".join(_lr(run, factor) for factor in factors)
    return command_of(run, {"optimizer.lr": rates}, sweep=True)


def command_of(
    run: RunFolder, changes: dict[str, str] | None = None, *, model: str | None = None, sweep: bool = False
) -> str:
    """The run again, with some keys changed, or at another size. changes: as they are typed."""
    typed, changes = _typed(run), changes or {}
    if model is not None:
        typed = {key: value for key, value in typed.items() if not key.startswith("model.")} | {
            "model": model
        }
    if "seed" in changes:
        typed = {key: value for key, value in typed.items() if not key.startswith("seed")}
    return _joined(["-m"] if sweep else [], typed | changes)


def _joined(flags: list[str], overrides: dict[str, str]) -> str:
    return " ".join([ENTRY, *flags, *(shlex.quote(f"{key}={value}") for key, value in overrides.items())])


def _typed(run: RunFolder) -> dict[str, str]:
    """The shortest overrides that ask for this run: its options, and the keys they do not settle.

    What an option brings with it or the plan fills in is left out, whether it was typed or not. An
    option that this program does not have (it came from a --config-dir) is written key by key.
    """
    config, _ = check(run.config, rules=(), is_saved=True)
    with suppress(UserError):  # a plugin that is gone: its parts are typed key by key
        use_plugins(config.plugins, around=False, copies=copies_of(run.path))
    choices = _choices(config)
    typed = ({"plugins": typed_at("plugins", config.plugins)} if config.plugins else {}) | choices
    wanted = leaves(to_plain(_settled(config, run)))
    so_far = _composed(choices)
    settled = leaves(to_plain(_settled(so_far, run)))
    # the budget comes last: what is filled in depends on the other keys
    for path in sorted(wanted, key=lambda path: path == "training.max_tokens"):
        if path in (*_NOT_TYPED_AGAIN, *_files_of_own(config)) or settled.get(path) == wanted[path]:
            continue
        typed[path] = typed_at(path, wanted[path])
        so_far = _with(so_far, path, wanted[path])
        settled = leaves(to_plain(_settled(so_far, run)))
    # Another size, rate or seed is no branch of the run that this one began with, and is trained by itself.
    kept = (key for key in typed if not key.startswith(("restore.", "ensemble.")))
    in_order = {key: typed[key] for key in sorted(kept, key=_place_in_command)} | _study_of(run)
    return in_order | {_LAUNCHER: "slurm"} if _was_submitted(run) else in_order


def _files_of_own(config: Config) -> Iterator[str]:
    """Keys that say where the data of the user's own dataset and tokenizer were written."""
    if config.dataset.name in parts_table.names_at("dataset.source"):
        yield from ("dataset.source", "dataset.path")
    if config.tokenizer.name in parts_table.names_at("tokenizer.name"):
        yield "tokenizer.path"


def _study_of(run: RunFolder) -> dict[str, str]:
    """Keys of the study that the run's folder is in, if its configuration names another: it was copied or
    renamed, and a command with the earlier name would act on the runs of the other study.
    """
    here = run.path.absolute().parent
    runs_dir, name = (
        str(run.setting("runs_dir") or _DEFAULTS.runs_dir),
        str(run.setting("study.name") or "default"),
    )
    configured = Path(runs_dir, name)
    if configured.exists():
        if configured.samefile(here):
            return {}
    elif name == here.name:
        return {}  # the whole of runs_dir was moved, or is seen from another folder
    place = {"study.name": typed_at("study.name", here.name)}
    root = Path(runs_dir)
    if not (root.exists() and root.samefile(here.parent)):
        place["runs_dir"] = typed_at("runs_dir", str(here.parent))
    return place


def _was_submitted(run: RunFolder) -> bool:
    """To Slurm: a command without the launcher would train where it is typed."""
    try:
        found = last_place(run.path)
    except UserError:
        return False
    return found is not None and found[0].launcher == SLURM


def _choices(config: Config) -> dict[str, str]:
    """Group to option, the size always, of the others those that do not come by themselves."""
    choices = {
        "model": config.model.name if config.model.name in options_of("model") else _DEFAULTS.model.name
    }
    for group in groups():
        name = getattr(getattr(config, group), "name", None)
        if group == "study" or name in (None, getattr(getattr(_composed(choices), group), "name", None)):
            continue
        options = [
            *options_of(group),
            *(one.name for one in parts_table.parts() if OPTION_GROUPS.get(one.kind) == group),
        ]
        option = name if name in options else "custom"
        if option in options:
            choices[group] = option
    return choices


def _composed(choices: dict[str, str]) -> Config:
    """The configuration of these options, before anything is filled in."""
    return _composed_once(tuple(choices.items()), parts_table.version())


@cache
def _composed_once(choices: tuple[tuple[str, str], ...], parts: int) -> Config:
    _composer().add_parts(parts_table.parts())
    config, _ = check(_composer().compose(dict(choices)).plain, rules=())
    return config


@cache
def _composer() -> Composer:
    """One for all: it reads what files there are, and what of them it has read."""
    from conf.composing.compose import Composer

    return Composer()


def _settled(config: Config, run: RunFolder) -> Config:
    """The configuration with all that a plan fills in, the budget too where none is given."""
    try:
        config = resolve(config)
        training = config.training
        if (training.max_tokens, training.max_steps, training.tokens_per_param) != (None, None, None):
            return config
        tokens = run.number("data.train_tokens")
        budget = resolve_budget(
            training,
            parameters=0,
            train_windows=max(0, int(tokens) - 1) // training.seq_len if tokens else 0,
            repeat=repeats(config) or not tokens,
            default_max_tokens=config.dataset.default_max_tokens,
        )
    except UserError:  # of a config.yaml that was damaged
        return config
    return replace(config, training=replace(training, max_tokens=budget.tokens))


def _with(config: Config, path: str, value: Any) -> Config:
    group, _, name = path.rpartition(".")
    if not group:
        return replace(config, **{name: value})
    if group.startswith("own."):
        part = group.removeprefix("own.")
        return replace(config, own={**config.own, part: {**config.own.get(part, {}), name: value}})
    return replace(config, **{group: replace(getattr(config, group), **{field_of(name): value})})


def _place_in_command(key: str) -> tuple[int, int]:
    """Options stand before their group's keys, groups in the order of the schema."""
    group = key.partition(".")[0]
    order = ["plugins", *groups()]
    return order.index(group) if group in order else len(order), "." in key


def larger_size(run: RunFolder, times: int) -> str | None:
    """The name of the smallest size at least `times` as wide, the largest there is; None if none is wider."""
    own = run.number("model.d_model") or _DEFAULTS.model.d_model
    return next(_wider(own, times), None)


def _wider(own: float, times: int) -> Iterator[str]:
    widths = {name: int(name[:-1]) for name in options_of("model") if name[:-1].isdigit()}
    wider = sorted((width, name) for name, width in widths.items() if width > own)
    yield from (name for width, name in wider if width >= times * own)
    yield from (name for _, name in wider[-1:])


def _seed(run: RunFolder) -> int:
    return int(run.number("seed") or 0)


def _lr(run: RunFolder, factor: float) -> str:
    """A round learning rate near a multiple of the run's."""
    return f"{(run.number('optimizer.lr') or _DEFAULTS.optimizer.lr) * factor:.1g}"
