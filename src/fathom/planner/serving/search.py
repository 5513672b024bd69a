"""The fewest GPUs, dollars or watts that meet latency limits, over layouts and numbers of replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.serving.constants import resolved
from fathom.planner.serving.deployment import BYTES, Deployment, Engine
from fathom.planner.serving.iteration import Batch, Iteration
from fathom.planner.serving.load import Fleet, Load, Served, growing, serve
from fathom.planner.workload import Model

OBJECTIVES = ("gpus", "dollars", "watts")
_TP = (1, 2, 4, 8, 16)
_MOST = 256  # replicas
_MOST_POOLED = 128  # replicas of both pools of a disaggregated fleet


@dataclass(frozen=True)
class Limits:
    """Latency limits in seconds for a `share` of requests; without any, that share is not preempted."""

    ttft: float = math.inf
    tpot: float = math.inf
    share: float = 0.99

    @property
    def any(self) -> bool:
        """Return whether there are limits."""
        return min(self.ttft, self.tpot) < math.inf

    def met_by(self, served: Served) -> bool:
        """Return whether enough requests met the limits."""
        if not self.any:
            return served.preempted <= (1 - self.share) * served.requests
        return served.within(self.ttft, self.tpot) >= self.share


def layouts(model: Model, hardware: Hardware, engine: Engine, weights: str, kv: str) -> Iterator[Deployment]:
    """Yield every layout of one replica that fits, smallest first.

    Tensor parallelism splits attention, and experts are sliced or spread. With experts spread, attention may
    have data parallelism instead.
    """
    for gpus in _TP:
        sliced, spread, ranked = (gpus, 1, 1), (gpus, 1, gpus), (1, gpus, gpus)
        for tp, dp, ep in (sliced, spread, ranked) if model.is_moe and gpus > 1 else (sliced,):
            try:
                of = Deployment(model, hardware, engine, tp, dp, ep, weights, kv)
                if of.cache_space > 0:
                    yield of
            except BadInputError:
                continue


def degrees(of: Deployment) -> str:
    """Return the options that give a layout."""
    each = {"tp": of.tp, "dp": of.dp, "ep": of.ep}
    return " ".join(f"--{name} {n}" for name, n in each.items() if n > 1 or (name == "tp" and of.dp == 1))


def floor(of: Deployment) -> float:
    """Return the least time per token of any engine: one sequence's weights read at the peak bandwidth."""
    parts = of.parts
    read = sum(n * BYTES[p] for p, n in parts.dense.items()) + 2 * parts.head
    read += sum(c * e.active * n * BYTES[p] / of.gpus for c, e, n, p in parts.experts)
    return read / of.hardware["hbm"].value / of.gain


def smallest(
    of: Deployment, load: Load, limits: Limits, values: Mapping[str, float], most: int = _MOST
) -> tuple[Fleet, Served] | None:
    """Return the fewest replicas of a layout that meet the limits, by bisection; None if `most` do not."""
    alone = replace(load, arrival="closed", concurrency=1, requests=3, trace=())
    if not limits.met_by(serve(Fleet(of), alone, values)):
        return None
    low, high, best = 0, min(1, most), None
    while best is None and low < high:
        served, meets = _tried(Fleet(of), shared(load, high), limits, values)
        if meets:
            best = served
        else:
            low, high = high, min(2 * high, most)
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        served, meets = _tried(Fleet(of), shared(load, middle), limits, values)
        if meets:
            high, best = middle, served
        else:
            low = middle
    return Fleet(of, high), best


def _tried(fleet: Fleet, load: Load, limits: Limits, values: Mapping[str, float]) -> tuple[Served, bool]:
    """Return how a fleet serves a load, and whether it meets the limits and keeps up with the arrivals.

    A fleet that fails with few requests does not meet the limits with more.
    """
    for served in growing(fleet, load, values):
        if not limits.met_by(served):
            return served, False
    return served, served.keeps_up


def shared(load: Load, replicas: int) -> Load:
    """Return one replica's share of a load that is divided among equal ones."""
    if load.trace:
        return replace(load, trace=load.trace[::replicas])
    return replace(
        load,
        rate=load.rate / replicas,
        concurrency=max(1, math.ceil(load.concurrency / replicas)),
        requests=load.requests and max(30, math.ceil(load.requests / replicas)),
    )


def search(
    candidates: list[Deployment],
    load: Load,
    limits: Limits,
    values: Mapping[str, float],
    objective: str = "gpus",
    gpus: int | None = None,
) -> list[tuple[Fleet, Served]]:
    """Return the fleets within the limits and `gpus`, best first. Raises BadInputError if there is none."""
    if objective not in OBJECTIVES:
        raise BadInputError(f"{objective!r} is not an objective; choose one of {', '.join(OBJECTIVES)}.")
    fleets = [answer for of in candidates if (answer := smallest(of, load, limits, values, most(of, gpus)))]
    if fleets:
        return undominated(best_first(fleets, objective))
    if gpus is None:
        raise BadInputError(_impossible(candidates, load, limits, values))
    best, _ = search(candidates, load, limits, values)[0]
    raise BadInputError(
        f"No fleet within --gpus {gpus} meets the limits; the smallest that does has {best.gpus}: "
        f"{degrees(best.decode)} --replicas {best.replicas}."
    )


def most(of: Deployment, gpus: int | None) -> int:
    """Return the most replicas of a layout, on `gpus` if they are limited."""
    return _MOST if gpus is None else min(_MOST, gpus // of.gpus)


def filling(
    candidates: list[Deployment], load: Load, values: Mapping[str, float], gpus: int
) -> list[tuple[Fleet, Served]]:
    """Return a fleet of each layout on at most `gpus`, first those with the most tokens per second and GPU.

    Where requests arrive at their own times, fewer replicas that keep up do better than more.
    """
    kept, rest = [], []
    arrives = load.is_open or bool(load.trace)
    for of in candidates:
        if arrives and (answer := smallest(of, load, Limits(), values, most(of, gpus))):
            kept.append(answer)
        elif replicas := min(most(of, gpus), _MOST if arrives else load.concurrency):
            rest.append((Fleet(of, replicas), serve(Fleet(of), shared(load, replicas), values)))
    if not kept and not rest:
        raise BadInputError(
            f"No layout fits in --gpus {gpus}; the smallest takes {min(of.gpus for of in candidates)}."
        )
    rest.sort(key=lambda answer: -answer[1].output_rate / answer[0].decode.gpus)
    return best_first(kept, "gpus") + rest


def best_first(fleets: list[tuple[Fleet, Served]], objective: str) -> list[tuple[Fleet, Served]]:
    """Return fleets by what they cost, then by their mean time per output token."""
    return sorted(fleets, key=lambda answer: (cost(answer[0], objective), float(np.mean(answer[1].tpot))))


def undominated(fleets: list[tuple[Fleet, Served]]) -> list[tuple[Fleet, Served]]:
    """Return the fleets, best first, without those that a better one matches or beats in both latencies."""
    kept: list[tuple[Fleet, Served]] = []
    for answer in fleets:
        ttft, tpot = (float(np.mean(times)) for times in (answer[1].ttft, answer[1].tpot))
        if not any(float(np.mean(s.ttft)) <= ttft and float(np.mean(s.tpot)) <= tpot for _, s in kept):
            kept.append(answer)
    return kept


def cost(fleet: Fleet, objective: str) -> float:
    """Return what a fleet costs: GPUs, dollars an hour, or rated watts."""
    hardware = fleet.decode.hardware
    each = {
        "gpus": lambda: 1.0,
        "dollars": lambda: hardware["price"].value,
        "watts": lambda: hardware["power"].value + hardware["host_power"].value,
    }
    return fleet.gpus * each[objective]()


def _impossible(candidates: list[Deployment], load: Load, limits: Limits, values: Mapping[str, float]) -> str:
    fastest = min(candidates, key=floor)
    if floor(fastest) > limits.tpot:
        return (
            f"A limit of {1e3 * limits.tpot:.3g} ms per token is below the speed of light: "
            f"{fastest.model.name} reads its "
            f"weights in {1e3 * floor(fastest):.3g} ms on {fastest.gpus} "
            f"{fastest.hardware.name} at the peak bandwidth; raise --tpot, or use more or faster GPUs."
        )
    alone = replace(load, arrival="closed", concurrency=1, requests=3, trace=())
    best = min((serve(Fleet(of), alone, values) for of in candidates), key=lambda s: _misses(s, limits))
    if limits.met_by(best):
        missed = "meet the limits; raise --ttft or --tpot," if limits.any else "keep up;"
        return (
            f"Even {_MOST} replicas of a layout do not {missed} lower --rate "
            "or --concurrency, or share the load among fleets."
        )
    return (
        f"No layout meets the limits even for a single request; the nearest has a TTFT of "
        f"{1e3 * best.ttft.mean():.3g} ms and {1e3 * best.tpot.mean():.3g} ms per token; "
        "raise --ttft or --tpot, or use more or faster GPUs."
    )


def _misses(served: Served, limits: Limits) -> float:
    return max(float(served.ttft.mean()) / limits.ttft, float(served.tpot.mean()) / limits.tpot)


def ledger(fleet: Fleet, load: Load, values: Mapping[str, float], batch: int) -> dict[str, float]:
    """Return the parts of a typical decode iteration in seconds."""
    of = fleet.decode
    context = batch * (load.prompt + load.output / 2)
    return Iteration(of, resolved(of, values)).parts(Batch(batch, context))


def search_pools(
    candidates: list[Deployment],
    load: Load,
    limits: Limits,
    values: Mapping[str, float],
    objective: str = "gpus",
    routing: str = "least-loaded",
    gpus: int | None = None,
) -> list[tuple[Fleet, Served]]:
    """Return disaggregated fleets within the limits and `gpus`, best first. Raises BadInputError if none."""
    fleets = [f for of in candidates if (f := smallest_pools(of, load, limits, values, routing))]
    if not fleets:
        raise BadInputError(
            f"Even {_MOST_POOLED} replicas for prefill and decode do not meet the limits; "
            "allow longer latencies, lower --rate, or share the load among fleets."
        )
    least = min(fleet.gpus for fleet, _ in fleets)
    if gpus is not None and least > gpus:
        raise BadInputError(
            f"No fleet within --gpus {gpus} meets the limits; the smallest that does has {least}."
        )
    fleets = [(fleet, served) for fleet, served in fleets if gpus is None or fleet.gpus <= gpus]
    return undominated(best_first(fleets, objective))


def smallest_pools(
    of: Deployment, load: Load, limits: Limits, values: Mapping[str, float], routing: str = "least-loaded"
) -> tuple[Fleet, Served] | None:
    """Return the fewest replicas of both pools: enough of each, then each as few as possible."""

    def tried(prefill: int, decode: int) -> tuple[Served, bool]:
        return _tried(Fleet(of, decode, of, prefill, routing), load, limits, values)

    prefill = decode = 1
    while not (now := tried(prefill, decode))[1]:
        if prefill + decode >= _MOST_POOLED:
            return None
        first = (now[0].ttft <= limits.ttft).mean(), -prefill
        then = (now[0].tpot <= limits.tpot).mean(), -decode
        prefill, decode = (_more(prefill), decode) if first < then else (prefill, _more(decode))
    prefill = _fewest(lambda n: tried(n, decode)[1], prefill)
    decode = _fewest(lambda n: tried(prefill, n)[1], decode)
    return Fleet(of, decode, of, prefill, routing), tried(prefill, decode)[0]


def _more(replicas: int) -> int:
    return replicas + (replicas + 1) // 2


def _fewest(holds: Callable[[int], bool], enough: int) -> int:
    """Return the smallest number that holds, up to one that does."""
    low = 0
    while enough - low > 1:
        middle = (low + enough) // 2
        low, enough = (low, middle) if holds(middle) else (middle, enough)
    return enough
