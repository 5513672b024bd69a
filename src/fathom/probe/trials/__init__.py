"""Trials: the program runs a few steps without a cause of lost time, and the step time shows its cost."""

from fathom.probe.trials.rounds import BASELINE, PREFIX, jobs
from fathom.probe.trials.trials import Trials
