"""Predictions by replay: the recorded timeline as a graph of dependencies, with changed durations."""

from fathom.analysis.replay.changes import Change, parse
from fathom.analysis.replay.recorded import seen_of
from fathom.analysis.replay.replay import FLOOR, Replay
from fathom.analysis.replay.results import Gain, Moved, Prediction

__all__ = ["FLOOR", "Change", "Gain", "Moved", "Prediction", "Replay", "parse", "seen_of"]
