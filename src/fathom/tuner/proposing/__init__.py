"""Proposals of parameters for kernels: the spaces that files declare, and a search through them."""

from fathom.tuner.proposing.evolution import Evolution
from fathom.tuner.proposing.source import Source, read_source
from fathom.tuner.proposing.space import Choice, Parameter, Space
