"""From a sounding to what Fathom has to say about it."""

from fathom.diagnosis.examine import examine

__all__ = ["examine"]
