"""The parent of a recorded program: launch, telemetry, collecting, finalising."""

from fathom.recorder.command import CannotLaunchError
from fathom.recorder.doctor import Check, Diagnosis, examine_host
from fathom.recorder.finish import finish, missing_libraries
from fathom.recorder.folding import fold, folded
from fathom.recorder.imports import import_any
from fathom.recorder.plan import DEPTHS, STEP_ON, Plan, number_or_word, trials
from fathom.recorder.record import Recording, leave, record
from fathom.recorder.session import Session

__all__ = [
    "DEPTHS",
    "STEP_ON",
    "CannotLaunchError",
    "Check",
    "Diagnosis",
    "Plan",
    "Recording",
    "Session",
    "examine_host",
    "finish",
    "fold",
    "folded",
    "import_any",
    "leave",
    "missing_libraries",
    "number_or_word",
    "record",
    "trials",
]
