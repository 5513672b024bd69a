"""Trials: for a few steps the program runs without something, and the step time is the answer."""

from fathom.probe.trials.rounds import BASELINE, PREFIX, jobs
from fathom.probe.trials.trials import Trials

__all__ = ["BASELINE", "PREFIX", "Trials", "jobs"]
