"""Techniques: optimisations as runnable pairs, plain and tuned, that the referee judges on this machine.

Operations import `Draw`, `Source`, the helpers that draw inputs, and the module `jpeg`. Everything
else lists, shows and runs techniques.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.lab.catalogue import GROUPS, chosen, naming, techniques
    from fathom.lab.cuda import Source
    from fathom.lab.drawing import Draw, matmul_unit, normal, traffic, uniform
    from fathom.lab.recording import NotRecordedError, record_forms
    from fathom.lab.results import Kept, recall
    from fathom.lab.running import Outcome, run
    from fathom.lab.surroundings import Here, here, why_not
    from fathom.lab.technique import Technique

_HOMES = {
    "GROUPS": "catalogue",
    "Draw": "drawing",
    "Here": "surroundings",
    "Kept": "results",
    "NotRecordedError": "recording",
    "Outcome": "running",
    "Source": "cuda",
    "Technique": "technique",
    "chosen": "catalogue",
    "here": "surroundings",
    "matmul_unit": "drawing",
    "naming": "catalogue",
    "normal": "drawing",
    "recall": "results",
    "record_forms": "recording",
    "run": "running",
    "techniques": "catalogue",
    "traffic": "drawing",
    "uniform": "drawing",
    "why_not": "surroundings",
}
__all__ = [
    "GROUPS",
    "Draw",
    "Here",
    "Kept",
    "NotRecordedError",
    "Outcome",
    "Source",
    "Technique",
    "chosen",
    "here",
    "matmul_unit",
    "naming",
    "normal",
    "recall",
    "record_forms",
    "run",
    "techniques",
    "traffic",
    "uniform",
    "why_not",
]


def __getattr__(name: str) -> Any:
    # The process of one side imports an operation, without the modules that only its parent needs.
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"fathom.lab.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fathom.lab' has no attribute '{name}'")
