"""`python -m slurm resubmit STUDY`: submit again what has ended and is not done."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE, FAILED
from experiment_utils.quantities import counted
from slurm.arguments import find_token_jobs, study_and_names
from slurm.records.submissions import LOCAL, SLURM, typed_study
from slurm.submit.frozen_code import CHOICES as CODES
from slurm.submit.frozen_code import FROZEN, NOW, MovedOn

if TYPE_CHECKING:
    from slurm.submit.batch import Submitted

EXAMPLES = """\
examples:
  python -m slurm resubmit lr_sweep                          # all that is not done, queued or running
  python -m slurm resubmit lr_sweep --only oom --mem x2      # those that ran out of memory, with twice of it
  python -m slurm resubmit lr_sweep --only timeout --time x2
  python -m slurm resubmit lr_sweep 1a2b3c4d slurm.partition=long
  python -m slurm resubmit lr_sweep --again --code now       # all, with the code of the checkout
  python -m slurm resubmit lr_sweep --dry-run --json
  python -m slurm resubmit Datasets/huge --mem x2            # the tasks of a token set that are missing

Runs go on from their last checkpoint, with the configuration that they were submitted with; only keys that
make no other run of it (slurm, memory, micro-batch, ...) can be changed. The code is the copy that they were
submitted with, whatever changed in the checkout since; --code now takes a copy of the checkout."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "resubmit",
        help="submit again what is not done",
        description="Submit again the runs of a study that have ended and are not done.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", metavar="STUDY", help="a path, a name below runs_dir, or a token set")
    parser.add_argument("rest", nargs="*", metavar="RUN|KEY=VALUE", help="runs (all), and keys to be changed")
    parser.add_argument("--only", metavar="STATES", help="failed, oom, timeout, ...: several with commas")
    parser.add_argument("--mem", metavar="x2|SIZE", help="memory of a node: a factor of the last, or a size")
    parser.add_argument("--time", metavar="x2|TIME", help="time limit: a factor of the last, or a time")
    parser.add_argument("--launcher", choices=(SLURM, LOCAL), help="other than the last time")
    parser.add_argument("--jobs", type=int, metavar="N", help="of the local launcher: runs side by side")
    parser.add_argument(
        "--code",
        choices=CODES,
        default=FROZEN,
        help="the copy they were submitted with, or the checkout (frozen)",
    )
    parser.add_argument(
        "--again", action="store_true", help="begin again from step 0, runs that are done too; as again=true"
    )
    parser.add_argument("--dry-run", action="store_true", help="say which, and submit nothing")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Find them, submit them, say so. Raises UserError."""
    from slurm.submit.resubmit_runs import Again, find, frozen_code, submit_again
    from slurm.submit.submit_runs import render

    if options.jobs is not None and options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: expected 1 or more runs side by side")
    tokens = find_token_jobs(options.study)
    if tokens is not None:
        from slurm.tokens.resubmit_tasks import submit_again as submit_tokens_again

        return submit_tokens_again(tokens, options)
    study, meant = study_and_names(options.study)
    study = study.resolve()
    typed = typed_study(study)
    names = [*meant, *(word for word in options.rest if "=" not in word)]
    only = None if options.only is None else [word.strip() for word in options.only.split(",")]
    again = options.again or "again=true" in options.rest
    found, left = find(study, names, only, again=again)
    moved = [one for one in frozen_code(found) if one] if options.code == FROZEN else []
    if options.dry_run or not found:
        if options.json:
            print(
                json.dumps(
                    [{"run": one.folder.name, "state": one.state, "reason": one.reason} for one in found]
                )
            )
            return DONE
        counts = Counter(one.state for one in found)
        words = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        print(f"{study.name}: {words or 'nothing'} to be submitted again")
        lines = [*_left(study.name, left), *map(_moved, moved)]
        print("\n".join(lines), end="\n" if lines else "")
        for one in found:
            print(f"  {one.folder.name}  {one.state}  {one.reason or ''}".rstrip())
        again = [word for word in _typed(options) if word != "--dry-run"]
        print(f"Submit: {shlex.join(again)}" if found else f"How it goes: python -m slurm status {typed}")
        return DONE
    submitted = submit_again(
        study,
        found,
        Again(
            only=only,
            mem=options.mem,
            time=options.time,
            overrides=[word for word in options.rest if "=" in word],
            launcher=options.launcher,
            jobs=options.jobs,
            command=shlex.join(_typed(options)),
            code=options.code,
            again=again,
        ),
    )
    if options.json:
        code = {str(one.copy): one.to_json() for one in moved}
        plain = [{**one.to_json(), "code": code.get(_copy(one) or "")} for one in submitted]
        print(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        counts = Counter(one.state for one in found)
        words = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        print(f"{study.name}: {counted(len(found), 'run')} again: {words}")
        print("\n".join([*_left(study.name, left), *map(_moved, moved), *render(submitted)]))
    return FAILED if any(one.not_sent for one in submitted) else DONE


def _moved(code: MovedOn) -> str:
    return f"the checkout has moved on since the submission ({code.words}): the copy runs; else --code {NOW}"


def _copy(submitted: Submitted) -> str | None:
    return submitted.submission.snapshot if submitted.submission is not None else None


def _left(study: str, left: dict[str, str]) -> list[str]:
    """Of runs that somebody works on, or will."""
    if not left:
        return []
    words = ", ".join(f"{count} {state}" for state, count in Counter(left.values()).most_common())
    return [f"{study}: left as they are: {words}"]


def _typed(options: argparse.Namespace) -> list[str]:
    words = ["python", "-m", "slurm", "resubmit", options.study, *options.rest]
    for name in ("only", "mem", "time", "launcher", "jobs"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += [*["--again"] * options.again, *["--code", NOW] * (options.code == NOW)]
    return words + (["--dry-run"] if options.dry_run else [])
