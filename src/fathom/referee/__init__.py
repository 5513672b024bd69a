"""Fair timing of a baseline and a candidate, and a check that both compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.referee.pair import Pair
    from fathom.referee.programs import prove_commands
    from fathom.referee.proof import prove, prove_pair
    from fathom.referee.settings import Settings
    from fathom.referee.verdict import Agreement, Comparison, Reason, Timing, Verdict

__all__ = [
    "Agreement",
    "Comparison",
    "Pair",
    "Reason",
    "Settings",
    "Timing",
    "Verdict",
    "prove",
    "prove_commands",
    "prove_pair",
]

_HOMES = {
    "Pair": "pair",
    "Settings": "settings",
    "prove": "proof",
    "prove_commands": "programs",
    "prove_pair": "proof",
}


def __getattr__(name: str) -> Any:
    # The process of a side imports this package too, and does not need the parent's modules.
    from importlib import import_module

    if name in __all__:
        return getattr(import_module(f"fathom.referee.{_HOMES.get(name, 'verdict')}"), name)
    raise AttributeError(f"module 'fathom.referee' has no attribute '{name}'")
