"""From a sounding to what Fathom has to say about it."""

from fathom.diagnosis.examine import examine
from fathom.diagnosis.naming import Seen, Told, seen, seen_in, told

__all__ = ["Seen", "Told", "examine", "seen", "seen_in", "told"]
