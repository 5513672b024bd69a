"""One kernel of a recorded program in depth: chosen from its sounding, profiled by ncu, explained."""

from fathom.recorder.dive.choosing import Target, choose
from fathom.recorder.dive.diving import Dive, dive
from fathom.recorder.dive.profiling import SETS, CannotProfileError, ncu_command

__all__ = ["SETS", "CannotProfileError", "Dive", "Target", "choose", "dive", "ncu_command"]
