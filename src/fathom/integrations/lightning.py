"""A callback for Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from fathom.api import Sounding
from fathom.integrations.figures import summary
from fathom.integrations.recording import STEPS, TrainingRecording


class FathomCallback(Callback):
    """Records some steps of rank 0, and logs their figures: `Trainer(callbacks=[FathomCallback(PATH)])`.

    The recording ends after `stop_after` optimizer steps; None: with the training. Further options are
    those of `fathom.record`. `sounding` is the result. Under `fathom run`, which records all ranks, it does
    nothing.
    """

    def __init__(self, path: str | Path, stop_after: int | None = STEPS, **options: Any) -> None:
        self.sounding: Sounding | None = None
        self._recording = TrainingRecording(path, stop_after, **options)
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start recording."""
        self._steps = trainer.global_step
        if trainer.is_global_zero:
            self._recording.begin()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step, unless gradients are only accumulated."""
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            self._take(trainer, self._recording.step())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop recording."""
        self._take(trainer, self._recording.end())

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop recording."""
        self._take(trainer, self._recording.end(exception))

    def _take(self, trainer: Any, sounding: Sounding | None) -> None:
        if sounding is None:
            return
        self.sounding = sounding
        for logger in trainer.loggers:
            logger.log_metrics(summary(sounding), step=trainer.global_step)
