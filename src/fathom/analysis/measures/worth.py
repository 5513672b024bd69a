"""What a share of L2's peak is worth in bytes: no such peak is published, a recording's own kernels tell it.

All bytes that an op must move pass L2, so no family's bytes a second can exceed its share of the peak times
the peak. Copies and elementwise kernels move little else: the largest value on which several agree is the
peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

SHARE = "lts__t_sector_throughput_srcunit_tex"  # of the most sectors that multiprocessors can ask L2 for
LEAST_SHARE, MOST_ERROR = 5.0, 0.02  # percent; of the share
AGREEING, APART = 3, 0.05  # families; of the value
UNTOLD = f"its counters' peak is not published, and fewer than {AGREEING} kernels of known bytes agree on it"


class Worth(NamedTuple):
    """The peak in B/s that shares are of, and how many families agree on it."""

    peak: float
    families: int


def worth(told: Iterable[tuple[float, float, float]]) -> Worth | None:
    """From (share in percent, its error, compulsory bytes a second) of families; None where too few agree."""
    sure = (
        (share, rate) for share, error, rate in told if share >= LEAST_SHARE and error <= MOST_ERROR * share
    )
    found = sorted((100 * rate / share for share, rate in sure), reverse=True)
    for place, most in enumerate(found):
        group = [one for one in found[place:] if one >= most * (1 - APART)]
        if len(group) >= AGREEING:
            return Worth(median(group), len(group))
    return None
