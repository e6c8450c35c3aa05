"""Begin an attempt: plan it on this machine, resolve every `auto`, record it in run.json."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import AUTO, Config
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from training.attempt.run_files import record_attempt
from training.distributed.place import Place
from training.plan.run_plan import Plan
from training.run.company import ALONE, Company

if TYPE_CHECKING:
    from conf.schema import Dataset
    from data_loading import Data, MixedData

log = logging.getLogger("training")


@dataclass(frozen=True)
class Settled:
    """A resolved plan. auto: resolved values. is_pinned: the micro-batch is of an earlier attempt."""

    plan: Plan
    auto: dict[str, Any]
    is_pinned: bool


def settle(
    folder: Path, config: Config, before: dict[str, Any], place: Place, company: Company = ALONE
) -> Settled:
    """Plan a run on this machine and record that an attempt begins.

    Args:
        before: run.json of the last attempt, empty without one.
        company: runs that it is trained with.

    Raises:
        UserError: the run does not fit this machine, or differs from its earlier attempts.
    """
    from models import loss_implementation
    from training.devices.device import resolve_device
    from training.devices.device_facts import device_facts
    from training.devices.gpu_check import gpus_of_job
    from training.own_parts.own_metric import header_of
    from training.plan.memory_parts import FOREGROUND
    from training.plan.run_plan import make_plan
    from training.run.micro_batch import died_for_memory, log_micro_batch
    from training.run.provenance import check_same_run, provenance

    ranks, kept = place.world_size, dict(before.get("auto", {}))
    ranks_before = ranks_of_last(before)
    if before.get("attempts") and ranks_before != ranks:
        kept.pop("threads", None)  # as many as there are cores for each rank
        log.info("%s, the last attempt had %s", counted(ranks, "rank"), ranks_before)
    # Before the plan queries the device's memory.
    device = resolve_device(config.training, kept, place.local_world_size, is_ensemble=company.together > 1)
    if kept.get("device") == "cpu" and config.training.device == AUTO and (gpus := gpus_of_job()):
        log.warning(
            "the first attempt was on the CPU, and so is this one: the GPUs of this job (%s) are idle", gpus
        )
    prepare = partial(_prepared, folder, before)
    after_oom = died_for_memory(folder, before)
    if after_oom:
        kept["checkpoint_writing"] = FOREGROUND
    plan = make_plan(
        config,
        tokenize=False,
        prepare=prepare,
        kept=kept,
        after_oom=after_oom,
        ranks=ranks,
        ranks_here=place.local_world_size,
        restored=before.get("restored"),
        together=company.together,
    )
    check_same_run(folder, before, plan)
    log_micro_batch(plan, kept, after_oom=after_oom)
    for warning in plan.memory.check(refuse=config.memory.refuse):
        log.warning("memory: %s", warning)
    auto = {
        "micro_batch": plan.budget.micro_batch,
        "loss_chunk": plan.memory.loss_chunk,
        "threads": device.threads,
        "device": device.kind,
        "precision": device.precision,
        "matmul_precision": device.matmul_precision,
        "checkpoint_writing": plan.memory.checkpoint_writing,
        **{name: kept[name] for name in ("cuda_graph",) if name in kept},  # decided by the first steps
    }
    implementation = {"loss": loss_implementation(device.kind)}
    if company.together > 1:
        implementation["loss"] = "models.stacked_loss"
    record_attempt(
        folder,
        plan.to_json(),
        auto,
        implementation,
        {**provenance(folder, before), "device": device_facts(device)},
        ranks=ranks,
        ensemble=company.to_json(),
        # columns of metrics that are no longer computed stay
        metrics={**before.get("metrics", {}), **header_of(config)},
    )
    return Settled(plan, auto, is_pinned="micro_batch" in kept and not after_oom)


def _prepared(
    folder: Path, before: dict[str, Any], dataset: Dataset, *arguments: Any, **options: Any
) -> Data | MixedData:
    """Data that the run began with, also if more was appended to them since.

    Raises:
        UserError: the data cannot be used, or the tokens of the submission no longer exist.
    """
    from data_loading import NotTokenized, prepare_run
    from data_loading.find.locate import NothingThere
    from data_loading.find.open_tokens import scheme_of
    from data_loading.text_io.file_names import has_known_suffix, tokens_for

    data = before.get("data") or {}
    try:
        return prepare_run(dataset, *arguments, versions=data.get("sets", ()), **options)
    except UserError as error:
        is_gone = isinstance(error, NotTokenized | NothingThere)
        if not is_gone and ("path" not in data or scheme_of(data["path"]) or Path(data["path"]).exists()):
            raise
        given = dataset.path or dataset.name
        gone = data.get("path") or (tokens_for(Path(given)) if has_known_suffix(given) else given)
        made_by = f"python pretokenize_dataset.py TEXT --output {gone}"
        if isinstance(error, NotTokenized):
            made_by = error.command
    raise UserError(
        f"the tokens of this run are gone: {gone}, below {Path.cwd()}. They were there when it was submitted."
        f" Copy them back there, or make them again: {made_by}. Then start the run again, with the command "
        f"that started it, or python -m slurm resubmit {folder}"
    ) from None


def ranks_of_last(run: dict[str, Any]) -> int:
    """Number of processes of the last attempt. run: content of run.json."""
    attempts = run.get("attempts") or [{}]
    ranks = (attempts[-1].get("how") or {}).get("ranks", 1)
    return ranks if isinstance(ranks, int) else 1
