"""Import the raw records of the probe and the recorder."""

from fathom.sounding.raw.importer import import_raw
from fathom.sounding.raw.times import StepTimes, step_times
