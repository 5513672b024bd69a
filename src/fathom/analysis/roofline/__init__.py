"""The speed of light: how long a machine's measured ceilings let work take at least."""

from fathom.analysis.roofline.needs import needs
from fathom.analysis.roofline.step import at_ceiling, beyond, utilisation

__all__ = ["at_ceiling", "beyond", "needs", "utilisation"]
