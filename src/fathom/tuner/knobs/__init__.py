"""The knobs: one row of data for each decision that the program leaves open."""

from fathom.tuner.knobs.catalogue import Knob, Value, catalogue, fitting
