"""Techniques: each one optimisation as a runnable pair, plain and tuned, that the referee judges here.

A technique's files import `Draw`, `Source` and the module `jpeg`; everything else is for those who list, show
and run them.
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
    # A side's process imports a technique, which has no use for what only the parent of the proof needs.
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"fathom.lab.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fathom.lab' has no attribute '{name}'")
