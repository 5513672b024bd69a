"""Fair timing of a baseline and a candidate, and a check that both compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.referee.address import absolute, load
    from fathom.referee.bisecting import Bisection, Search, Tested, find_commit
    from fathom.referee.child.values import arguments
    from fathom.referee.gate import Gate, StoppedError, TooLongError, Turn
    from fathom.referee.launching import Fork, Launcher, running
    from fathom.referee.pair import Pair, Settings, chosen_from, command_of
    from fathom.referee.programs import Metrics, differences, prove_steps
    from fathom.referee.proof import prove, prove_pair
    from fathom.referee.queue import first_gpu, one_at_a_time
    from fathom.referee.sides import BASELINE, CANDIDATE, SideError
    from fathom.referee.verdict import Agreement, Comparison, Refusal, Timing, Verdict

# The process of a side imports this package too, but not the modules that only the parent needs.
__all__, __getattr__ = exports(__name__)
