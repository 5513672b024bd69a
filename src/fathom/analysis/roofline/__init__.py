"""The speed of light: how long a machine's measured ceilings let work take at least."""

from fathom.analysis.roofline.needs import needs
from fathom.analysis.roofline.step import at_ceiling, utilisation
from fathom.machine.limits import Limits, limits_of, peaks_of

__all__ = ["Limits", "at_ceiling", "limits_of", "needs", "peaks_of", "utilisation"]
