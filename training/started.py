"""What a run has when its first step is due: all that was built and opened for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from data_loading import Data, Loader, MixedData, StreamLoader
    from models import LanguageModel
    from training.checkpoints import Checkpoints
    from training.distributed.loader import PartOfStream
    from training.evaluation import HeldOut
    from training.graphed_step import TakesSteps
    from training.loop import Run
    from training.metrics import MetricsFile, SourcesFile
    from training.micro_batch import SplitBatches
    from training.progress import Progress


@dataclass
class Started:
    """sources: its file, of a mixture. batches: from the step on at which the run stands."""

    run: Run
    data: Data | MixedData
    val_sets: list[HeldOut]
    model: LanguageModel
    optimizer: torch.optim.Optimizer
    loader: Loader | StreamLoader | PartOfStream
    checkpoints: Checkpoints
    metrics: MetricsFile
    sources: SourcesFile | None
    step: TakesSteps
    batches: SplitBatches
    progress: Progress
