"""Settings that the probe puts in place in the program, and records of its results to compare them by."""

from fathom.probe.knobs.acts import ACTS, install
from fathom.probe.knobs.switches import SWITCHES
from fathom.probe.knobs.switching import ORDER
