"""The normaliser that all importers share: events of one process in, tables of a sounding out."""

from fathom.sounding.events.normal import Events, normalised
from fathom.sounding.events.trace import Origin, Trace, is_pid, listed_gpu
