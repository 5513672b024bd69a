"""Profile one kernel of a recorded program in depth: choose it, run ncu, explain the result."""

from fathom.recorder.dive.choosing import Target, choose
from fathom.recorder.dive.diving import Dive, dive, explanation_of, families_of, spots_of
from fathom.recorder.dive.profiling import SETS, CannotProfileError, ncu_command
