"""Find out which hardware counters this machine can stream, and which of them in the same pass."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.gauges.counters.parent import NoCountersError, keep_counters, needed, prevented, qualify

# The qualifying process starts from this package and must not load what only its parent needs.
__all__, __getattr__ = exports(__name__)
