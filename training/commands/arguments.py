"""Arguments that the commands share."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError
from training.devices.thread_waiting import choose_waiting
from training.run.load_run import BEST, SavedRun, open_run

if TYPE_CHECKING:
    from training.devices.device import Device


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """RUN, and which checkpoint of it."""
    parser.add_argument("given", metavar="RUN", help="path, name below runs_dir, or beginning of an identity")
    parser.add_argument(
        "--checkpoint", default=BEST, metavar="WHICH", help="best (default: of the val loss), last, or a step"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """As `add_checkpoint`, and where it is computed."""
    add_checkpoint(parser)
    parser.add_argument("--device", default="auto", metavar="KIND", help="auto (default), cpu or cuda")
    parser.add_argument("--threads", type=int, metavar="N", help="of a CPU (default: those this job may use)")


def opened(options: argparse.Namespace) -> tuple[SavedRun, Device]:
    """The run, and the device that its model is to be put on.

    Raises:
        UserError: no such run, checkpoint or device.
    """
    if options.device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {options.device}: expected auto, cpu or cuda")
    if options.threads is not None and options.threads < 1:
        raise UserError(f"--threads {options.threads}: expected 1 or more")
    choose_waiting()  # before torch is loaded
    run = open_run(options.given, options.checkpoint)

    from training.devices.device import resolve_device

    threads = options.threads or "auto"
    training = replace(
        run.config.training,
        device=options.device,
        precision="fp32",
        matmul_precision="highest",
        threads=threads,
    )
    device = resolve_device(training, {})
    device.take()
    return run, device
