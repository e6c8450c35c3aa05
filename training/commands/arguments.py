"""Arguments shared by the commands."""

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
    """Add RUN and its checkpoint."""
    parser.add_argument("given", metavar="RUN", help="path, name below runs_dir, or beginning of an identity")
    parser.add_argument(
        "--checkpoint", default=BEST, metavar="WHICH", help="best by val loss (default), last, or a step"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN, its checkpoint, and the device and threads that compute."""
    add_checkpoint(parser)
    parser.add_argument("--device", default="auto", metavar="KIND", help="auto (default), cpu or cuda")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads (default: those that this job may use)"
    )


def opened(options: argparse.Namespace) -> tuple[SavedRun, Device]:
    """Open the run; returns it with the device for its model.

    Raises:
        UserError: the run, checkpoint or device does not exist.
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
