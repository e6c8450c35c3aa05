"""What cannot be planned in view of how many processes there will be, and of where its files are to go."""

from __future__ import annotations

from pathlib import Path

from conf import Config
from conf.budget import micro_batch
from experiment_utils.errors import Problem, UserError


def problems_with_ranks(config: Config, ranks: int) -> list[Problem]:
    """What cannot be computed by several processes."""
    if ranks == 1:
        return []
    problems = []
    try:
        micro_batch(config.training, ranks)
    except UserError as error:
        problems += error.problems
    if config.dataset.ranks == "shared":
        problems.append(
            Problem(
                "dataset.ranks",
                f"shared: {ranks} ranks would read the same windows and compute the same gradient. Use "
                "dataset.ranks=distinct, which is another run, or one rank",
            )
        )
    if config.arch.state_reset is not None:
        problems.append(
            Problem(
                "arch.state_reset",
                f"{ranks} ranks have rows of their own, and a checkpoint keeps the states of one. Use one "
                "rank, or take it away",
            )
        )
    if config.training.dead_units:
        problems.append(
            Problem("training.dead_units", "each rank sees a part of the tokens. Use false, or one rank")
        )
    if config.logging.sample_every and config.training.parallel == "fsdp":
        what = "no rank has the whole model with fsdp. Use null, or training.parallel=ddp"
        problems.append(Problem("logging.sample_every", what))
    if config.optimizer.grad_noise and config.training.parallel == "fsdp":
        problems.append(
            Problem(
                "optimizer.grad_noise",
                "is drawn for whole gradients, which fsdp has in parts. Use training.parallel=ddp",
            )
        )
    if config.optimizer.name == "adafactor" and config.training.parallel == "fsdp":
        problems.append(
            Problem(
                "optimizer.name",
                "adafactor needs the rows and columns of whole gradients, which fsdp has in parts. Use "
                "training.parallel=ddp",
            )
        )
    if config.training.compile and config.training.parallel == "fsdp":
        problems.append(
            Problem(
                "training.compile",
                "true: the compiled model reads its parameters where fsdp has them in parts. Use "
                "training.parallel=ddp, or training.compile=false",
            )
        )
    return problems


def problems_with_place(config: Config) -> list[Problem]:
    """What stands where the run's folders are to be made, and is no folder."""
    wanted = Path(config.runs_dir) / (config.study.name or "default")
    there = next(path for path in (wanted, *wanted.parents) if path.exists() or path == path.parent)
    if there.is_dir():
        return []
    where = "study.name" if there == wanted else "runs_dir"
    return [
        Problem(
            where, f"{there} is a file, but run folders are to be made in {wanted}. Choose another {where}="
        )
    ]
