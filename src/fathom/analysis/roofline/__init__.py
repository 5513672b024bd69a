"""The speed of light: how long a machine's measured ceilings let work take at least."""

from fathom.analysis.roofline.needs import TF32, needs
from fathom.analysis.roofline.step import at_ceiling, utilisation

__all__ = ["TF32", "at_ceiling", "needs", "utilisation"]
