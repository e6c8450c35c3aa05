"""The entry: overrides in; runs, plans or help out. `python experiments.py --help` has examples.

Reading top to bottom: flags (before Hydra is imported), then compose and check everything, then run
one, plan, or hand a sweep to Hydra.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE, FAILED, INTERRUPTED, USER_ERROR, exit_status

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conf import Config
    from conf.between_keys.rules import Rule
    from conf.command_line.arguments import Arguments
    from conf.command_line.request import Request


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    arguments = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: _main(arguments), f"interrupted; {_how_to_resume(arguments)}")


def _how_to_resume(argv: list[str]) -> str:
    """Typed again as it is, `again=true` would begin again."""
    if _without_again(argv) == argv:
        return "type the same command again to go on"
    return "to go on, type the command again without again=true"


def _without_again(argv: list[str]) -> list[str]:
    return [argument for argument in argv if argument.lstrip("+").partition("=")[0] != "again"]


def _main(argv: list[str]) -> int:
    from conf.command_line.arguments import read_arguments

    arguments = read_arguments(argv)
    if arguments.version:
        from experiment_utils.modules import version

        return _print({"version": version()} if arguments.json else f"highwater {version()}")
    if arguments.help:
        from conf.command_line.help import help_page
        from conf.command_line.request import use_plugins_of

        use_plugins_of(arguments.overrides)
        return _print(help_page(arguments.topics, arguments.config_dir))
    if arguments.to_hydra:
        return _ask_hydra()
    from conf.between_keys.ensembles import is_ensemble
    from conf.command_line.request import read_request
    from conf.composing.compose import Composer
    from slurm.launch.compose_one import all_rules

    arguments = _with_tokenizer_of_text(arguments)
    searchpath = [override for override in arguments.overrides if override.startswith("hydra.searchpath=")]
    composer = Composer(arguments.config_dir, arguments.config_name, searchpath)
    rules = all_rules()
    request = read_request(
        arguments.overrides,
        composer,
        multirun=arguments.multirun,
        rules=rules,
        command=arguments.command(arguments.overrides, multirun=True),
    )
    if arguments.show:
        shown = _composed(request, arguments)
        return _print(shown) if arguments.json else _print_as_it_is(shown)
    from slurm.submit.request_checks import check_swept, check_waited_for

    check_swept(request.settings)
    _log_to(sys.stderr if arguments.json else sys.stdout)
    if any(run.config.plan for run in request.runs):
        return _plan(request, composer, rules, arguments)
    if not request.launcher.submits:
        check_waited_for([run.config for run in request.runs])
        if not request.multirun and not is_ensemble(request.runs[0].config):
            return _run(request, arguments)
    return _submit(request, composer, rules, arguments)


def _with_tokenizer_of_text(arguments: Arguments) -> Arguments:
    """With the tokenizer of the token set next to the text of `dataset=text`, if none is given."""
    given = [one.lstrip("+").partition("=") for one in arguments.overrides]
    paths = [value.strip("'\"") for key, _, value in given if key == "dataset.path"]
    names_one = any(key.startswith("tokenizer") for key, _, _ in given)
    if names_one or "dataset=text" not in arguments.overrides or len(paths) != 1 or "," in paths[0]:
        return arguments
    from dataclasses import replace

    from data_loading.find.run_tokenizer import tokenizer_of_set

    found = tokenizer_of_set(paths[0])
    if found:
        print(f"{' '.join(found)}: that of the token set of {paths[0]}", file=sys.stderr)
    return replace(arguments, overrides=[*arguments.overrides, *found])


def _run(request: Request, arguments: Arguments) -> int:
    from slurm.launch.work_through import run_one
    from training.attempt.begin import CodeChanged

    try:
        outcome = run_one(request.runs[0].config, quiet=arguments.json)
    except CodeChanged as changed:
        typed = {key: _command_with(key, arguments, request) for key in ("code=any", "again=true")}
        raise UserError(
            f"{changed}\n  resume it:      {typed['code=any']}\n  begin it again: {typed['again=true']}"
        ) from changed
    if arguments.json:
        _print(outcome.to_json())
        _print_earlier_code([outcome.folder], arguments, request)
        return outcome.exit_code
    if outcome.exit_code != USER_ERROR:  # else nothing ran, and the child said why
        from analysis.summary import render_run

        if outcome.state != "done" and sys.stdout.isatty():
            print()  # a process that was killed leaves its moving line
        _print(render_run(outcome.folder))
        _print_earlier_code([outcome.folder], arguments, request)
        if outcome.reason is not None:
            print(f"{outcome.state}: {outcome.folder}: {outcome.reason}", file=sys.stderr)
    return outcome.exit_code


def _print_earlier_code(folders: Iterable[Path], arguments: Arguments, request: Request) -> None:
    """Print which results were computed by code that has changed since."""
    from slurm.launch.earlier_code import earlier_code

    for line in earlier_code(folders, _command_with("again=true", arguments, request)):
        print(line, file=sys.stderr if arguments.json else sys.stdout)


def _command_with(override: str, arguments: Arguments, request: Request) -> str:
    return arguments.command([*_without_again(arguments.overrides), override], multirun=request.multirun)


def _plan(
    request: Request, composer: Any, rules: tuple[Rule, ...], arguments: Arguments, *, goes_on: bool = False
) -> int:
    """goes_on: more runs are chosen by the results of these."""
    from conf.between_keys.ensembles import is_ensemble
    from conf.command_line.request import SLURM_LAUNCHER
    from slurm.plans.gpu_slots import gpu_slots, planned_with
    from slurm.plans.sweep_plans import plan_all, render_plans, too_many
    from training.plan.run_plan import REFUSED_HERE

    if request.halves:
        return _plan_search(request, composer, rules, arguments)
    if request.is_open:
        raise UserError("plan: this sweeper chooses its runs as it goes, so there is no plan of all of them")
    rest = [override for override in arguments.overrides if not override.lstrip("+").startswith("plan=")]
    command = arguments.command(rest, multirun=request.multirun)
    configs = [run.config for run in request.runs]
    if any(map(is_ensemble, configs)) and request.launcher.target != SLURM_LAUNCHER:
        return _plan_ensembles(configs, arguments.json, command)
    if request.launcher.target == SLURM_LAUNCHER:
        from slurm.submit.cluster_plan import plan_for_cluster, render

        found = plan_for_cluster(configs, is_open=goes_on)
        of_runs = (need for run in found.missing for need in run.plan.needs)
        is_refused = found.refused or any(need.startswith(REFUSED_HERE) for need in of_runs)
        submit = "When that is fixed, submit it" if is_refused else "Submit it"
        return _print(found.to_json() if arguments.json else f"{render(found)}\n\n{submit}: {command}")
    jobs = request.launcher.jobs
    slots = gpu_slots(min(jobs, len(configs)))
    with planned_with(slots):
        plans = plan_all(configs, tokenize=False)
    if arguments.json:
        return _print([plan.to_json() for plan in plans])
    needs = dict.fromkeys(need for plan in plans for need in plan.needs)
    if (problem := too_many(plans, jobs, slots)) is not None:
        needs[f"{REFUSED_HERE}: {problem}"] = None
    return _print("\n".join([render_plans(plans), "", *needs, _start(needs, command)]))


def _start(needs: Iterable[str], command: str) -> str:
    """The next command; of a run that would be refused it is not yet the next."""
    from training.plan.memory_plan import DOES_NOT_FIT
    from training.plan.run_plan import REFUSED_HERE

    is_refused = any(need.startswith((DOES_NOT_FIT, REFUSED_HERE)) for need in needs)
    return f"{'When that is fixed, start it' if is_refused else 'Start it'}: {command}"


def _plan_search(request: Request, composer: Any, rules: tuple[Rule, ...], arguments: Arguments) -> int:
    """Rung by rung, and the plan of the runs of the first one."""
    import dataclasses

    from conf.command_line.request import SLURM_LAUNCHER, Run, read_run
    from slurm.search.search_request import read_search

    search = read_search(request)
    each = [search.arguments(candidate, search.rungs[0]) for candidate in search.candidates]
    runs = [Run(tuple(one), read_run(one, composer, rules)) for one in each]
    first = dataclasses.replace(request, runs=runs, is_open=False, sweeper={})
    if not arguments.json:
        _print(f"{search.render()}\n\nrung 1:")
        return _plan(first, composer, rules, arguments, goes_on=True)
    configs = [run.config for run in runs]
    if request.launcher.target == SLURM_LAUNCHER:
        from slurm.submit.cluster_plan import plan_for_cluster

        found = plan_for_cluster(configs, is_open=True).to_json()
        return _print(search.to_json() | {"first_rung": found.pop("runs"), **found})
    from slurm.plans.sweep_plans import plan_all

    plans = plan_all(configs, tokenize=False)
    return _print(search.to_json() | {"first_rung": [plan.to_json() for plan in plans]})


def _plan_ensembles(configs: list[Config], as_json: bool, command: str) -> int:
    """The runs of each, and how many of them go together here."""
    from slurm.plans.sweep_plans import plan_ensembles

    found = plan_ensembles(configs)
    if as_json:
        return _print([plan for one in found for plan in one.to_json()])
    needs = dict.fromkeys(need for one in found for plan in one.plans for need in plan.needs)
    return _print("\n".join([*(one.render() for one in found), "", *needs, _start(needs, command)]))


def _submit(request: Request, composer: Any, rules: tuple[Rule, ...], arguments: Arguments) -> int:
    from slurm.submit.submit_runs import render
    from slurm.submit.sweep import submit_sweep
    from slurm.submit.watch_runs import WaitInterrupted

    command = arguments.command(_without_again(arguments.overrides), multirun=request.multirun)
    try:
        runs = submit_sweep(request, composer, rules, quiet=arguments.json, command=command)
    except WaitInterrupted as stopped:
        print(f"no longer waiting; the jobs go on. {stopped}", file=sys.stderr)
        return INTERRUPTED
    outcomes = list(runs.outcomes.values())
    ended = [outcome.to_json() for outcome in outcomes]
    if arguments.json and request.launcher.submits:
        submitted = [one.to_json() for one in runs.submitted]
        _print({"submitted": submitted, "outcomes": ended} if outcomes else submitted)
    elif arguments.json:
        _print(ended)
    elif outcomes:
        from analysis.summary import render_sweep

        known = {outcome.folder.resolve(): (outcome.state, outcome.reason) for outcome in outcomes}
        _print(render_sweep(runs.folders, known=known if request.launcher.submits else {}))
    elif request.launcher.submits:
        _print("\n".join(render(runs.submitted)))
    _print_earlier_code(runs.folders, arguments, request)
    if runs.stopped_with is not None:
        print(f"stopped; {_how_to_resume(arguments.overrides)}", file=sys.stderr)
        return runs.stopped_with
    if any(one.not_sent for one in runs.submitted):
        return FAILED
    return DONE if all(outcome.exit_code == DONE for outcome in outcomes) else FAILED


def _composed(request: Request, arguments: Arguments) -> Any:
    """The answer of --cfg: every key of every run, or the group that --package names."""
    from conf.composing.check import to_plain

    shown = [to_plain(run.config) for run in request.runs]
    if arguments.package:
        missing = arguments.package not in shown[0]
        if missing:
            raise UserError(f"--package {arguments.package}: choices are {', '.join(shown[0])}")
        shown = [plain[arguments.package] for plain in shown]
    if arguments.json:
        return shown if request.multirun else shown[0]
    import yaml

    return yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True).rstrip("\n")


def _ask_hydra() -> int:
    """Commands that are Hydra's own, such as --info."""
    import logging

    import hydra

    from conf.composing.hydra_setup import VERSION_BASE, prepare_hydra
    from conf.option_files import CONF

    logging.raiseExceptions = False  # a reader that has seen enough, `head` say
    prepare_hydra()
    decorate = hydra.main(config_path=str(CONF), config_name="config", version_base=VERSION_BASE)
    decorate(lambda config: None)()
    return DONE


def _print(answer: Any) -> int:
    print(answer if isinstance(answer, str) else json.dumps(answer, indent=2, ensure_ascii=False), flush=True)
    return DONE


def _print_as_it_is(text: str) -> int:
    from experiment_utils.typed_here import print_verbatim

    print_verbatim(f"{text}\n")
    return DONE


def _log_to(stream: Any) -> None:
    import logging

    from training.report.log import terminal_handler

    logging.basicConfig(handlers=[terminal_handler(stream, is_brief=True)], level=logging.INFO)


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(FAILED)


if __name__ == "__main__":
    sys.exit(main())
