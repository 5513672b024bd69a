"""The parent of a recorded program: launch, telemetry, supervision, finishing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.recorder.command import CannotLaunchError, resolve_command
    from fathom.recorder.doctor import Diagnosis, DoctorCheck, examine_host
    from fathom.recorder.finishing import finish, missing_libraries
    from fathom.recorder.folding import fold, folded
    from fathom.recorder.imports import import_any
    from fathom.recorder.plan import DEPTHS, STEP_ON, TRIALS, Plan, number_or_word, trials
    from fathom.recorder.recording import Recording, leave, record
    from fathom.recorder.session import SelfRecording

__all__ = [
    "DEPTHS",
    "STEP_ON",
    "TRIALS",
    "CannotLaunchError",
    "Diagnosis",
    "DoctorCheck",
    "Plan",
    "Recording",
    "SelfRecording",
    "examine_host",
    "finish",
    "fold",
    "folded",
    "import_any",
    "leave",
    "missing_libraries",
    "number_or_word",
    "record",
    "resolve_command",
    "trials",
]

# Loaded on first use: imports and reports of profiled kernels need little of this package.
_MODULES = {
    "command": ("CannotLaunchError", "resolve_command"),
    "doctor": ("Diagnosis", "DoctorCheck", "examine_host"),
    "finishing": ("finish", "missing_libraries"),
    "folding": ("fold", "folded"),
    "imports": ("import_any",),
    "plan": ("DEPTHS", "STEP_ON", "TRIALS", "Plan", "number_or_word", "trials"),
    "recording": ("Recording", "leave", "record"),
    "session": ("SelfRecording",),
}
_LATER = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
