"""Measure the latency of the smallest GPU operations, as seen by a Python program.

launch        time per empty kernel, launched QUEUE times without waiting, by the fastest of several ways;
              `series` has all of them, and the time from a launch on an idle device until the host sees that
              the kernel has started
graph_node    time that one more empty kernel adds to a graph replay: the slope over chain lengths
synchronise   a stream synchronisation right after an empty kernel; `series` adds one on an idle stream
small_copy    a copy of four bytes from pinned memory to the device, then a synchronisation
item          `.item()` of a number on an idle device
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import c_int32
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fathom.gauges import cuda
from fathom.gauges.conditions import Watch
from fathom.gauges.gpu import MeasuredGpu, Workload, effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best, point
from fathom.gauges.timer import Effort, Run, Sample, sample
from fathom.machine import Ceiling

QUEUE = 500  # launches without waiting; the driver's queue holds about a thousand
NODES = (25, 50, 100, 200, 400)
BUDGET_S = 0.3
PATIENCE_S = 1.0


def _ways(here: MeasuredGpu) -> dict[str, Workload]:
    """Return ways to launch a nearly empty kernel, by name, the emptiest kernel first."""
    element = here.random(1)
    ways: dict[str, Workload] = {}
    if hasattr(here.torch.cuda, "_sleep"):
        ways["torch's spin kernel"] = partial(here.torch.cuda._sleep, 0)
    ways["torch's negation of one element"] = element.neg_
    with suppress(NotHereError):
        ways["cuda-core"] = cuda.kernel("launch", "empty").launcher(1, 1)
    return ways


def _empty(here: MeasuredGpu) -> Workload:
    return next(iter(_ways(here).values()))


def _host(here: MeasuredGpu, run: Run, at: Mapping[str, object], pace: Effort) -> Measurement:
    """Measure with the host's clock. Sensors are read only at the end, because readings delay launches."""
    with Watch(here.sensors, thread=False) as watch:
        taken = sample(run, pace)
    return Measurement(at, taken, 1.0, watch.conditions, watch.flags)


def _each(call: Workload, before: Workload | None = None) -> Run:
    """Return a function that times `call`, each time after an untimed `before`, in seconds."""

    def run(count: int) -> float:
        total = 0.0
        for _ in range(count):
            if before is not None:
                before()
            started = perf_counter()
            call()
            total += perf_counter() - started
        return total

    return run


def _queued(here: MeasuredGpu, work: Workload) -> Run:
    """Return a function that times QUEUE calls of `work` until all are done, in seconds per call."""

    def run(count: int) -> float:
        total = 0.0
        for _ in range(count):
            here.stream.synchronize()
            started = perf_counter()
            for _ in range(QUEUE):
                work()
            here.stream.synchronize()
            total += perf_counter() - started
        return total / QUEUE

    return run


def _launch(job: GaugeJob) -> Ceiling:
    here = gpu()
    pace = effort(job, BUDGET_S, sample_s=1e-5)
    results = [_host(here, _queued(here, work), {"way": way}, pace) for way, work in _ways(here).items()]
    ceiling = best("latency.launch", results)
    with suppress(NotHereError):
        begun = _host(here, _until_begun(here), {"way": "cuda-core, idle"}, effort(job, BUDGET_S))
        ceiling.series.append(point(begun, begun.sample.median))
    return ceiling


def _until_begun(here: MeasuredGpu) -> Run:
    """Return a function that times a launch until the host sees the flag that its kernel sets."""
    pinned = here.torch.zeros(1, dtype=here.torch.int32, pin_memory=True)
    seen = pinned.numpy()
    compiled = cuda.kernel("launch", "raise_flag")
    works = [compiled.launcher(1, 1, pinned, c_int32(value)) for value in (0, 1)]

    def run(count: int) -> float:
        total = 0.0
        for _ in range(count):
            value = 1 - int(seen[0])
            here.stream.synchronize()
            started = perf_counter()
            works[value]()
            _wait_for(seen, value, started)
            total += perf_counter() - started
        return total

    return run


def _wait_for(seen: Any, value: int, started: float) -> None:
    while seen[0] != value:
        if perf_counter() - started > PATIENCE_S:
            raise NotHereError("the device's write to pinned memory did not reach the host")


def _graph_node(job: GaugeJob) -> Ceiling:
    here = gpu()
    work = _empty(here)
    work()  # loads the kernel, which must not happen during capture
    here.torch.cuda.synchronize()
    points = [_replay(here, work, nodes, job) for nodes in NODES]
    result = Measurement(
        {"nodes": [NODES[0], NODES[-1]]},
        Sample(slopes(NODES, [p.sample.seconds for p in points]), 1),
        conditions=points[-1].conditions,
        flags=points[-1].flags,
    )
    return best("latency.graph_node", points, result)


def _replay(here: MeasuredGpu, work: Workload, nodes: int, job: GaugeJob) -> Measurement:
    graph = here.torch.cuda.CUDAGraph()
    with here.torch.cuda.graph(graph):
        for _ in range(nodes):
            work()
    return here.measure({"nodes": nodes}, graph.replay, 1.0, effort(job, BUDGET_S / len(NODES)))


def slopes(nodes: tuple[int, ...], seconds: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Return, for each sample, the seconds that one node adds: the least-squares slope over `nodes`."""
    count = min(len(values) for values in seconds)
    rows = np.array([values[:count] for values in seconds])
    return tuple(float(slope) for slope in np.polyfit(nodes, rows, 1)[0])


def _synchronise(job: GaugeJob) -> Ceiling:
    here = gpu()
    work, wait = _empty(here), here.stream.synchronize
    pace = effort(job, BUDGET_S, sample_s=2e-4)
    after = _host(here, _each(wait, before=work), {"after": "an empty kernel"}, pace)
    idle = _host(here, _each(wait), {"after": "nothing"}, pace)
    return best("latency.synchronise", (after, idle), after)


def _small_copy(job: GaugeJob) -> Ceiling:
    here, results = gpu(), list[Measurement]()
    for size in (4, 1024, 65536) if job.full else (4,):
        host = here.torch.randint(0, 255, (size,), dtype=here.torch.uint8, pin_memory=True)
        device = here.torch.empty(size, dtype=here.torch.uint8, device="cuda")

        def copy(to: Any = device, source: Any = host) -> None:
            to.copy_(source, non_blocking=True)
            here.stream.synchronize()

        results.append(_host(here, _each(copy), {"bytes": size}, effort(job, BUDGET_S, sample_s=2e-4)))
    return best("latency.small_copy", results, results[0])


def _item(job: GaugeJob) -> Ceiling:
    here = gpu()
    number = here.random(1).reshape(())
    here.torch.cuda.synchronize()
    return best("latency.item", [_host(here, _each(number.item), {}, effort(job, BUDGET_S, sample_s=2e-4))])


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    "latency.launch": _launch,
    "latency.graph_node": _graph_node,
    "latency.synchronise": _synchronise,
    "latency.small_copy": _small_copy,
    "latency.item": _item,
}
