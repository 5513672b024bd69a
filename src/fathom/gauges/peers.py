"""Measure copies between GPUs: every pair, in each direction and in both at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from fathom.gauges.conditions import ConditionSensors, Watch
from fathom.gauges.gpu import effort
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import Run, sample
from fathom.machine import Ceiling
from fathom.units import GIB, MS_PER_S

SIZE = GIB // 2
SHARE = 1 / 8  # share of a device's free memory that one buffer may take
BUDGET_S = 10.0
NO_ACCESS = "these GPUs have no peer access: the copy went through host memory"


def _torch(job: GaugeJob) -> Any:
    import torch

    if len(job.devices) < 2 or torch.cuda.device_count() < 2:
        raise NotHereError("there is only one GPU")
    return torch


@cache
def _matrix(job: GaugeJob) -> list[Measurement]:
    """Return measurements of each pair, in each direction and in both; `at` has the inventory's indices."""
    torch = _torch(job)
    count = torch.cuda.device_count()
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    seconds = BUDGET_S / len(pairs)
    return [
        _pair(torch, i, j, both, seconds, job)
        for i, j in pairs
        for both in (False, True)
        if not both or i < j
    ]


def _pair(torch: Any, source: int, to: int, both: bool, seconds: float, job: GaugeJob) -> Measurement:
    room = min(torch.cuda.mem_get_info(device)[0] for device in (source, to))
    size = min(SIZE, int(room * SHARE))
    ways = [(source, to), (to, source)] if both else [(source, to)]
    copies = [Copy(torch, *way, size) for way in ways]
    pace = effort(job, seconds / 2, sample_s=0.01)
    flags = () if torch.cuda.can_device_access_peer(source, to) else (NO_ACCESS,)
    at = {"from": job.devices[source], "to": job.devices[to], "both_ways": both, "bytes": size}
    with Watch(ConditionSensors()) as watch:
        taken = sample(_concurrent(torch, copies), pace)
    return Measurement(at, taken, size * len(copies), watch.conditions, (*flags, *watch.flags))


class Copy:
    """A copy of random bytes from GPU `source` to GPU `to`, on its own stream of the source."""

    def __init__(self, torch: Any, source: int, to: int, size: int) -> None:
        self.device = torch.device("cuda", source)
        self.stream = torch.cuda.Stream(device=self.device)
        self.source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=self.device)
        self.to = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", to))
        torch.cuda.synchronize(source)

    def issue(self, torch: Any, count: int) -> None:
        with torch.cuda.stream(self.stream):
            for _ in range(count):
                self.to.copy_(self.source, non_blocking=True)


def _concurrent(torch: Any, copies: list[Copy]) -> Run:
    """Return a function that times concurrent copies on the device, from the first start to the last end."""

    def run(count: int) -> float:
        first = copies[0].stream
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(copies[0].device):
            begin.record(first)
        for copy in copies[1:]:
            copy.stream.wait_event(begin)
        for copy in copies:
            copy.issue(torch, count)
        for copy in copies[1:]:
            first.wait_stream(copy.stream)
        with torch.cuda.device(copies[0].device):
            end.record(first)
        end.synchronize()
        return float(begin.elapsed_time(end)) / MS_PER_S

    return run


def _link(job: GaugeJob) -> Ceiling:
    """Return the rate of the fastest pair in one direction; the series has all pairs."""
    results = _matrix(job)
    one_way = [result for result in results if not result.at["both_ways"]]
    return best("link.peer", results, max(one_way, key=lambda result: result.rate))


def _copy(job: GaugeJob) -> list[Ceiling]:
    """Return one ceiling per device: the rate to its fastest peer."""
    results = [result for result in _matrix(job) if not result.at["both_ways"]]
    ceilings = []
    for device in job.devices:
        own = best("copy.peer", [result for result in results if result.at["from"] == device])
        ceilings.append(replace(own, device=device))
    return ceilings


GAUGES: dict[str, Callable[[GaugeJob], Any]] = {"copy.peer": _copy, "link.peer": _link}
