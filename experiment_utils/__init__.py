"""What every run needs around the loop: its budget, identity, seeds and folder."""

from __future__ import annotations

from experiment_utils.budget import (
    AUTO_MICRO_BATCH_TOKENS,
    Budget,
    batch_of_rank,
    effective_batch,
    micro_batch,
    milestones,
    resolve_budget,
)
from experiment_utils.folder import (
    RUN_FOLDER_VERSION,
    STALLED_AFTER_S,
    Status,
    create_run,
    holder_of,
    next_attempt,
    read_config,
    read_run,
    read_status,
    record_attempt,
    run_folder,
    run_lock,
    state_of,
    update_attempt,
    update_run,
)
from experiment_utils.made_by import Code, Versions, codes_of
from experiment_utils.run_identity import (
    HOW_IT_IS_COMPUTED,
    WHERE_IT_RUNS,
    identity,
    is_in_identity,
    makes_another_run,
    run_name,
    varying_settings,
)
from experiment_utils.seeding import seed_all, seeds

__all__ = [
    "AUTO_MICRO_BATCH_TOKENS",
    "HOW_IT_IS_COMPUTED",
    "RUN_FOLDER_VERSION",
    "STALLED_AFTER_S",
    "WHERE_IT_RUNS",
    "Budget",
    "Code",
    "Status",
    "Versions",
    "batch_of_rank",
    "codes_of",
    "create_run",
    "effective_batch",
    "holder_of",
    "identity",
    "is_in_identity",
    "makes_another_run",
    "micro_batch",
    "milestones",
    "next_attempt",
    "read_config",
    "read_run",
    "read_status",
    "record_attempt",
    "resolve_budget",
    "run_folder",
    "run_lock",
    "run_name",
    "seed_all",
    "seeds",
    "state_of",
    "update_attempt",
    "update_run",
    "varying_settings",
]
