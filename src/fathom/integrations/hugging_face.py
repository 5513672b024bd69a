"""A callback for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from fathom.api import Sounding
from fathom.integrations.figures import summary
from fathom.integrations.recording import STEPS, TrainingRecording


class FathomCallback(TrainerCallback):
    """Records some steps of rank 0: `Trainer(callbacks=[FathomCallback(PATH)])`.

    The recording ends after `stop_after` optimizer steps; None: with the training. Further options are
    those of `fathom.record`. `sounding` is the result, and `state.log_history` has its figures. Under
    `fathom run`, which records all ranks, it does nothing.
    """

    def __init__(self, path: str | Path, stop_after: int | None = STEPS, **options: Any) -> None:
        self.sounding: Sounding | None = None
        self._recording = TrainingRecording(path, stop_after, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start recording."""
        if state.is_world_process_zero:
            self._recording.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step."""
        self._take(state, self._recording.step())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop recording."""
        self._take(state, self._recording.end())

    def _take(self, state: Any, sounding: Sounding | None) -> None:
        if sounding is not None:
            self.sounding = sounding
            state.log_history.append({**summary(sounding), "step": state.global_step})
