"""`python -m slurm resubmit STUDY`: submit again what has ended and is not done."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Iterable

from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE, FAILED
from experiment_utils.quantities import counted
from slurm.arguments import find_token_jobs, study_and_names
from slurm.records.submissions import LOCAL, SLURM, typed_study
from slurm.submit.frozen_code import CHOICES as CODES
from slurm.submit.frozen_code import FROZEN, NOW

EXAMPLES = """\
examples:
  python -m slurm resubmit lr_sweep                          # all that is not done, queued or running
  python -m slurm resubmit lr_sweep --only oom --mem x2      # runs that were out of memory, with twice of it
  python -m slurm resubmit lr_sweep --only timeout --time x2
  python -m slurm resubmit lr_sweep 1a2b3c4d slurm.partition=long
  python -m slurm resubmit lr_sweep --again --code now       # all, with the code of the checkout
  python -m slurm resubmit lr_sweep --dry-run --json
  python -m slurm resubmit Datasets/huge --mem x2            # the tasks of a token set that are missing

Runs resume from their last checkpoint, with the configuration that they were submitted with. Only keys that
are not in their identity (slurm, memory, micro-batch, ...) can be changed. They run the copy of the code that
they were submitted with; --code now takes a copy of the checkout."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "resubmit",
        help="submit again what is not done",
        description="Submit again the runs of a study that have ended and are not done.",
        epilog=EXAMPLES,
    )
    parser.add_argument("study", metavar="STUDY", help="a path, a name below runs_dir, or a token set")
    parser.add_argument("rest", nargs="*", metavar="RUN|KEY=VALUE", help="runs (all), and keys to change")
    parser.add_argument("--only", metavar="STATES", help="failed, oom, timeout, ...: several with commas")
    parser.add_argument("--mem", metavar="x2|SIZE", help="memory of a node: a factor of the last, or a size")
    parser.add_argument("--time", metavar="x2|TIME", help="time limit: a factor of the last, or a time")
    parser.add_argument("--launcher", choices=(SLURM, LOCAL), help="other than the last time")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs in parallel on this machine")
    parser.add_argument(
        "--code", choices=CODES, default=FROZEN, help="the copy they were submitted with, or the checkout"
    )
    parser.add_argument("--again", action="store_true", help="begin at step 0, also runs that are done")
    parser.add_argument("--dry-run", action="store_true", help="list the runs, submit nothing")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Find the runs and submit them.

    Raises:
        UserError: the study or a run does not exist, or the runs cannot be submitted so.
    """
    from slurm.submit.resubmit_runs import Again, find, frozen_code, submit_again
    from slurm.submit.submit_runs import render

    if options.jobs is not None and options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: expected 1 or more runs in parallel")
    tokens = find_token_jobs(options.study)
    if tokens is not None:
        from slurm.tokens.resubmit_tasks import submit_again as submit_tokens_again

        return submit_tokens_again(tokens, options)
    study, meant = study_and_names(options.study)
    study = study.resolve()
    names = [*meant, *(word for word in options.rest if "=" not in word)]
    only = None if options.only is None else [word.strip() for word in options.only.split(",")]
    again = options.again or "again=true" in options.rest
    found, left = find(study, names, only, again=again)
    moved = [one for one in frozen_code(found) if one] if options.code == FROZEN else []
    states = _counted(one.state for one in found)
    lines = [f"{study.name}: left as they are: {_counted(left.values())}"] if left else []
    lines += [
        f"the checkout has changed since the submission ({one.words}): the copy runs; else --code {NOW}"
        for one in moved
    ]
    typed = _typed(options)
    if options.dry_run or not found:
        plain = [{"run": one.folder.name, "state": one.state, "reason": one.reason} for one in found]
        lines = [f"{study.name}: {states or 'nothing'} to be submitted again", *lines]
        lines += [f"  {one.folder.name}  {one.state}  {one.reason or ''}".rstrip() for one in found]
        lines.append(f"Submit: {typed}" if found else f"States: python -m slurm status {typed_study(study)}")
        print(json.dumps(plain) if options.json else "\n".join(lines))
        return DONE
    submitted = submit_again(
        study,
        found,
        Again(
            only=only, mem=options.mem, time=options.time,
            overrides=[word for word in options.rest if "=" in word], launcher=options.launcher,
            jobs=options.jobs, command=typed, code=options.code, again=again,
        ),
    )  # fmt: skip
    if options.json:
        code = {str(one.copy): one.to_json() for one in moved}
        copies = [one.submission.snapshot if one.submission is not None else None for one in submitted]
        answers = [
            {**one.to_json(), "code": code.get(copy or "")}
            for one, copy in zip(submitted, copies, strict=True)
        ]
        print(json.dumps(answers, indent=2, ensure_ascii=False))
    else:
        print(f"{study.name}: {counted(len(found), 'run')} again: {states}")
        print(*lines, *render(submitted), sep="\n")
    return FAILED if any(one.not_sent for one in submitted) else DONE


def _counted(states: Iterable[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())


def _typed(options: argparse.Namespace) -> str:
    """The command, as it is typed to submit."""
    words = ["python", "-m", "slurm", "resubmit", options.study, *options.rest]
    for name in ("only", "mem", "time", "launcher", "jobs"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += [*["--again"] * options.again, *["--code", NOW] * (options.code == NOW)]
    return shlex.join(words)
