"""Fair timing of a baseline and a candidate, and a check that both compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.referee.address import absolute, load
    from fathom.referee.child.values import arguments
    from fathom.referee.gate import Gate, StoppedError
    from fathom.referee.launching import Fork, Launcher
    from fathom.referee.pair import Pair
    from fathom.referee.programs import prove_commands
    from fathom.referee.proof import prove, prove_pair
    from fathom.referee.queue import first_gpu, one_at_a_time
    from fathom.referee.settings import Settings
    from fathom.referee.turn import TooLongError, Turn
    from fathom.referee.verdict import Agreement, Comparison, Reason, Timing, Verdict

__all__ = [
    "Agreement",
    "Comparison",
    "Fork",
    "Gate",
    "Launcher",
    "Pair",
    "Reason",
    "Settings",
    "StoppedError",
    "Timing",
    "TooLongError",
    "Turn",
    "Verdict",
    "absolute",
    "arguments",
    "first_gpu",
    "load",
    "one_at_a_time",
    "prove",
    "prove_commands",
    "prove_pair",
]

_HOMES = {
    "Pair": "pair",
    "Settings": "settings",
    "arguments": "child.values",
    "prove_commands": "programs",
    **dict.fromkeys(("Fork", "Launcher"), "launching"),
    **dict.fromkeys(("Gate", "StoppedError"), "gate"),
    **dict.fromkeys(("TooLongError", "Turn"), "turn"),
    **dict.fromkeys(("absolute", "load"), "address"),
    **dict.fromkeys(("first_gpu", "one_at_a_time"), "queue"),
    **dict.fromkeys(("prove", "prove_pair"), "proof"),
}


def __getattr__(name: str) -> Any:
    # The process of a side imports this package too, and does not need the parent's modules.
    from importlib import import_module

    if name in __all__:
        return getattr(import_module(f"fathom.referee.{_HOMES.get(name, 'verdict')}"), name)
    raise AttributeError(f"module 'fathom.referee' has no attribute '{name}'")
