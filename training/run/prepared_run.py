"""A run before its first step, with everything that was built and opened for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from data_loading import Data, Loader, MixedData, StreamLoader
    from models import LanguageModel
    from training.checkpoint.checkpoints import Checkpoints
    from training.distributed.loader import PartOfStream
    from training.evaluation.evaluate import HeldOut
    from training.report.metrics import MetricsFile, SourcesFile
    from training.report.progress import Progress
    from training.run.loop import Run
    from training.run.micro_batch import SplitBatches
    from training.run.text_samples import TextSamples
    from training.step.graphed_step import TakesSteps
    from training.step.train_step import Step


@dataclass
class Started:
    """Objects of a run. sources: file of a mixture's sources. batches: those after the run's current step."""

    run: Run
    data: Data | MixedData
    val_sets: list[HeldOut]
    model: LanguageModel
    optimizer: torch.optim.Optimizer
    loader: Loader | StreamLoader | PartOfStream
    checkpoints: Checkpoints
    metrics: MetricsFile
    sources: SourcesFile | None
    step: Step
    batches: SplitBatches
    progress: Progress
    samples: TextSamples | None = None
    steps: TakesSteps = field(init=False)
    """Takes the steps: `step`, or CUDA graphs of it."""

    def __post_init__(self) -> None:
        self.steps = self.step
