"""A recording of some steps of a trainer, which ends by itself; shared by the callbacks of trainers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fathom.api import Sounding, record
from fathom.errors import FathomError
from fathom.integrations.figures import safe, verdict

STEPS = 300  # usually enough for all phases


class TrainingRecording:
    """Records the steps of a training until `stop_after` of them, or its end. Options are those of `record`.

    Errors of Fathom are printed and never end the training.
    """

    def __init__(self, path: str | Path, stop_after: int | None = STEPS, **options: Any) -> None:
        self._record = record(path, **options)
        self._stop_after = stop_after
        self._steps = 0
        self._begun = False

    def begin(self) -> None:
        """Start recording."""
        try:
            self._record.__enter__()
            self._begun = True
        except FathomError as error:
            _say(str(error))

    def step(self) -> Sounding | None:
        """Count a step. Return the sounding if the recording ended with it."""
        self._steps += 1
        due = self._begun and self._stop_after is not None and self._steps >= self._stop_after
        return self.end() if due else None

    def end(self, error: BaseException | None = None) -> Sounding | None:
        """Stop recording and return the sounding; None if there is none, or it was returned before."""
        if not self._begun:
            return None
        self._begun = False
        try:
            self._record.__exit__(type(error) if error else None, error, None)
            sounding = self._record.sounding
            if sounding is not None:
                _say(f"{verdict(sounding)} Read {sounding.path} with `fathom report`.".strip())
            return sounding
        except FathomError as failed:
            _say(str(failed))
            return None


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"fathom: {safe(text)}", file=sys.stderr, flush=True)
