"""Arrivals of requests at a server, which load tests send and plans simulate."""

from __future__ import annotations

from random import Random

ARRIVALS = ("constant", "poisson", "bursty")
BURSTINESS = 0.25  # shape of the gamma distribution: the variance is four times Poisson's


def next_arrival(pattern: str, rate: float, draw: Random) -> float:
    """Return the seconds until the next arrival, at `rate` a second on average."""
    if pattern == "constant":
        return 1 / rate
    if pattern == "poisson":
        return draw.expovariate(rate)
    return draw.gammavariate(BURSTINESS, 1 / (BURSTINESS * rate))
