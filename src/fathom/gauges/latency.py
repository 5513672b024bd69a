"""What it costs to ask the GPU for anything: times of the smallest requests, as a Python program has them.

launch        time of one of many empty kernels issued back to back without waiting, in the quickest of some
              ways; `series` has them all, and the time from a call on an idle device until the host sees that
              the kernel has begun
graph_node    what one more empty kernel adds to the replay of a chain of them: the slope over their number
synchronise   a stream's synchronise, called right after an empty kernel was issued; `series`: on an idle one
small_copy    four bytes from pinned memory to the device and the synchronise that waits for them
item          `.item()` of a number on the device that nothing is pending for
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fathom.gauges import cuda
from fathom.gauges.conditions import Watch
from fathom.gauges.gpu import Gpu, Work, effort, gpu
from fathom.gauges.job import Job
from fathom.gauges.timer import Effort, Run, Sample, sample
from fathom.gauges.trials import NotHereError, Trial, best, ceiling
from fathom.machine import Ceiling

QUEUE = 500  # launches in a row; the driver's queue holds about a thousand
NODES = (25, 50, 100, 200, 400)
BUDGET_S = 0.3
PATIENCE_S = 1.0


def _ways(here: Gpu) -> dict[str, Work]:
    """Launches of kernels that do next to nothing, the emptiest first."""
    one = here.random(1)
    ways: dict[str, Work] = {}
    if hasattr(here.torch.cuda, "_sleep"):
        ways["torch's spin kernel"] = partial(here.torch.cuda._sleep, 0)
    ways["torch's negation of one element"] = one.neg_
    with suppress(NotHereError):
        ways["cuda-core"] = cuda.kernel("launch", "empty").launcher(1, 1)
    return ways


def _empty(here: Gpu) -> Work:
    return next(iter(_ways(here).values()))


def _host(here: Gpu, run: Run, at: dict[str, Any], pace: Effort) -> Trial:
    """A trial on the host's clock. The sensors are read at its end only: asking them delays launches."""
    with Watch(here.sensors, thread=False) as watch:
        taken = sample(run, pace)
    return Trial(at, taken, 1.0, watch.conditions, watch.flags)


def _each(call: Work, before: Work | None = None) -> Run:
    """Time of `call` alone, after an untimed `before`."""

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


def _queued(here: Gpu, work: Work) -> Run:
    """Time until `work` was issued QUEUE times and all of it is done, shared out to each of them."""

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


def _launch(job: Job) -> Ceiling:
    here = gpu()
    pace = effort(job, BUDGET_S, sample_s=1e-5)
    trials = [_host(here, _queued(here, work), {"way": way}, pace) for way, work in _ways(here).items()]
    found = best("latency.launch", trials)
    with suppress(NotHereError):
        begun = _host(here, _until_begun(here), {"way": "cuda-core, idle"}, effort(job, BUDGET_S))
        found.series.append({**begun.at, "value": begun.sample.median})
    return found


def _until_begun(here: Gpu) -> Run:
    """Time from the call until the host sees the flag that the kernel raises in pinned memory."""
    pinned = here.torch.zeros(1, dtype=here.torch.int32, pin_memory=True)
    seen = pinned.numpy()
    compiled = cuda.kernel("launch", "raise_flag")
    works = [compiled.launcher(1, 1, pinned, cuda.whole(value)) for value in (0, 1)]

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


def _graph_node(job: Job) -> Ceiling:
    here = gpu()
    work = _empty(here)
    work()  # loads the kernel, which a capture must not
    here.torch.cuda.synchronize()
    points = [_replay(here, work, nodes, job) for nodes in NODES]
    series = [{**point.at, "value": point.sample.median} for point in points]
    trial = Trial(
        {"nodes": [NODES[0], NODES[-1]]},
        Sample(slopes(NODES, [p.sample.seconds for p in points]), 1),
        conditions=points[-1].conditions,
        flags=points[-1].flags,
    )
    return ceiling("latency.graph_node", trial, series)


def _replay(here: Gpu, work: Work, nodes: int, job: Job) -> Trial:
    graph = here.torch.cuda.CUDAGraph()
    with here.torch.cuda.graph(graph):
        for _ in range(nodes):
            work()
    return here.trial({"nodes": nodes}, graph.replay, 1.0, effort(job, BUDGET_S / len(NODES)))


def slopes(nodes: tuple[int, ...], seconds: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Seconds that one node adds: the least-squares slope over `nodes`, for each sample that all have."""
    count = min(len(values) for values in seconds)
    rows = np.array([values[:count] for values in seconds])
    return tuple(float(slope) for slope in np.polyfit(nodes, rows, 1)[0])


def _synchronise(job: Job) -> Ceiling:
    here = gpu()
    work, wait = _empty(here), here.stream.synchronize
    pace = effort(job, BUDGET_S, sample_s=2e-4)
    after = _host(here, _each(wait, before=work), {"after": "an empty kernel"}, pace)
    idle = _host(here, _each(wait), {"after": "nothing"}, pace)
    return ceiling("latency.synchronise", after, [{**t.at, "value": t.sample.median} for t in (after, idle)])


def _small_copy(job: Job) -> Ceiling:
    here, trials = gpu(), list[Trial]()
    for size in (4, 1024, 65536) if job.full else (4,):
        host = here.torch.randint(0, 255, (size,), dtype=here.torch.uint8, pin_memory=True)
        device = here.torch.empty(size, dtype=here.torch.uint8, device="cuda")

        def copy(to: Any = device, source: Any = host) -> None:
            to.copy_(source, non_blocking=True)
            here.stream.synchronize()

        trials.append(_host(here, _each(copy), {"bytes": size}, effort(job, BUDGET_S, sample_s=2e-4)))
    return ceiling("latency.small_copy", trials[0], [{**t.at, "value": t.sample.median} for t in trials])


def _item(job: Job) -> Ceiling:
    here = gpu()
    number = here.random(1).reshape(())
    here.torch.cuda.synchronize()
    return best("latency.item", [_host(here, _each(number.item), {}, effort(job, BUDGET_S, sample_s=2e-4))])


GAUGES: dict[str, Callable[[Job], Ceiling]] = {
    "latency.launch": _launch,
    "latency.graph_node": _graph_node,
    "latency.synchronise": _synchronise,
    "latency.small_copy": _small_copy,
    "latency.item": _item,
}
