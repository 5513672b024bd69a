"""The fewest prefill and decode replicas of a disaggregated fleet that meet latency limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fathom.errors import BadInputError
from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.load import Fleet, Load, Served, serve
from fathom.planner.serving.search import Limits, best_first

_MOST = 128  # replicas of both pools


def search_pools(
    candidates: list[Deployment],
    load: Load,
    limits: Limits,
    values: Mapping[str, float],
    objective: str = "gpus",
    routing: str = "least-loaded",
) -> list[tuple[Fleet, Served]]:
    """Return disaggregated fleets that meet the limits, best first. Raises BadInputError if none does."""
    fleets = [f for of in candidates if (f := smallest_pools(of, load, limits, values, routing))]
    if not fleets:
        raise BadInputError(
            f"Even {_MOST} replicas for prefill and decode do not meet the limits; "
            "allow longer latencies, lower --rate, or share the load among fleets."
        )
    return best_first(fleets, objective)


def smallest_pools(
    of: Deployment, load: Load, limits: Limits, values: Mapping[str, float], routing: str = "least-loaded"
) -> tuple[Fleet, Served] | None:
    """Return the fewest replicas of both pools: enough of each, then each as few as possible."""

    def served(prefill: int, decode: int) -> Served:
        return serve(Fleet(of, decode, of, prefill, routing), load, values)

    prefill = decode = 1
    while not limits.met_by(now := served(prefill, decode)):
        if prefill + decode >= _MOST:
            return None
        first, next_ = (now.ttft <= limits.ttft).mean(), (now.tpot <= limits.tpot).mean()
        prefill, decode = (_more(prefill), decode) if first < next_ else (prefill, _more(decode))
    prefill = _fewest(lambda n: limits.met_by(served(n, decode)), prefill)
    decode = _fewest(lambda n: limits.met_by(served(prefill, n)), decode)
    return Fleet(of, decode, of, prefill, routing), served(prefill, decode)


def _more(replicas: int) -> int:
    return replicas + (replicas + 1) // 2


def _fewest(holds: Callable[[int], bool], enough: int) -> int:
    """Return the smallest number that holds, up to one that does."""
    low = 0
    while enough - low > 1:
        middle = (low + enough) // 2
        low, enough = (low, middle) if holds(middle) else (middle, enough)
    return enough
