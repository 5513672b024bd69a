"""Predictions by replay: the recorded timeline as a graph of dependencies, with changed durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.replay.changes import Change, parse
    from fathom.analysis.replay.critical import critical_path
    from fathom.analysis.replay.model import FLOOR
    from fathom.analysis.replay.recorded import replayed_device
    from fathom.analysis.replay.replay import Replay
    from fathom.analysis.replay.results import Gain, Moved, Prediction

__all__, __getattr__ = exports(__name__)
