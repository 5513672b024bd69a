"""The parent of a recorded program: launch, telemetry, supervision, finishing."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.recorder.applied import Applied, read_settings, write_settings
    from fathom.recorder.command import CannotLaunchError, default_name, free_output, resolve_command
    from fathom.recorder.destination import Destination, choose_destination
    from fathom.recorder.doctor import Diagnosis, DoctorCheck, examine_host
    from fathom.recorder.finishing import finish, missing_libraries
    from fathom.recorder.folding import fold, folded
    from fathom.recorder.imports import import_any
    from fathom.recorder.launch import child_environment
    from fathom.recorder.plan import DEPTHS, STEP_ON, TRIALS, Plan, number_or_word, size_of, trials
    from fathom.recorder.recording import Recording, leave, record
    from fathom.recorder.session import SelfRecording

# `fathom import` and reports of profiled kernels need only a part of this package.
__all__, __getattr__ = exports(__name__)
