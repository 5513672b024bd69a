"""How much of a launch's beginning and end does nothing: blocks start, and end, one after the other.

Where kernels follow each other closely, their edges lie beside the gaps, and a fit that knows nothing of
edges takes them for idle time and overstates what runs in between. So launches are cut by as much as
explains the samples best; values are means over whole launches all the same.
"""

from __future__ import annotations

import numpy as np

from fathom.analysis.folding.launches import Launches
from fathom.analysis.folding.profile import Mixture
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.folding.states import Members
from fathom.analysis.intervals import Array

WIDTHS = np.array([0, 1000, 2000, 3000, 4000, 6000, 8000], float)  # ns, both edges together
SHIFTS = np.linspace(-2000, 2000, 5)  # ns: edges of different length look like a shift
MOST_BURSTS, MOST_SAMPLES, COLUMNS, COUNTERS = 2, 2000, 48, 6
CLEAR = 8.0  # nats, were a tenth of the samples independent


def edges_of(
    readings: Readings, launches: Launches, members: list[Members], alignments: dict[int, Alignment]
) -> float:
    """Nanoseconds that both edges of a launch take together; 0 where that explains nothing clearly better."""
    sound = sorted((a for a in alignments.values() if not a.why), key=lambda a: -a.samples)[:MOST_BURSTS]
    if not sound:
        return 0.0
    costs: list[float] = []
    for width in WIDTHS:
        costs.append(sum(_cost(readings, launches, members, one, width) for one in sound))
        if costs[-1] > min(costs):  # beyond the best one
            break
    samples = sum(min(a.samples, MOST_SAMPLES) for a in sound)
    best = int(np.argmin(costs))
    gain = 0.5 * samples / 10 * np.log(costs[0] / max(costs[best], 1e-12))
    return _between(np.array(costs), best) if gain > CLEAR else 0.0


def _cost(
    readings: Readings, launches: Launches, members: list[Members], alignment: Alignment, width: float
) -> float:
    """The least squared residual of one burst with edges of that width, at whatever shift suits it."""
    rows = np.flatnonzero(readings.burst == alignment.burst)[:MOST_SAMPLES]
    states = launches.states(alignment.burst, members, width)
    mixture = Mixture(readings.only(rows), states, COLUMNS, COUNTERS)
    return min(float(mixture.residuals(alignment.shift_ns + shift).sum()) for shift in SHIFTS)


def _between(costs: Array, best: int) -> float:
    """The lowest point of the parabola through the best width and its neighbours."""
    if best in (0, len(costs) - 1):
        return float(WIDTHS[best])
    near = slice(best - 1, best + 2)
    curve, slope, _ = np.polyfit(WIDTHS[near], costs[near], 2)
    return float(np.clip(-slope / (2 * curve), WIDTHS[best - 1], WIDTHS[best + 1]))
