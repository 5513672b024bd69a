"""Copies between host and device, through pinned and through pageable memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fathom.gauges.gpu import GIB, effort, gpu
from fathom.gauges.job import Job
from fathom.gauges.staged import Staged
from fathom.gauges.trials import Trial, best
from fathom.machine import Ceiling

MIB = 2**20
SIZES = (16 * MIB, 64 * MIB, 256 * MIB)
FULL_SIZES = (MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
BUDGET_S = {"pinned": 1.0, "pageable": 2.5}  # the latter is as uneven as the host is busy


def _measure(way: str, kind: str, job: Job) -> Ceiling:
    chosen = FULL_SIZES if job.full else SIZES
    pinned = kind == "pinned"
    trials = [t for size in chosen for t in _at(way, size, pinned, BUDGET_S[kind] / len(chosen), job)]
    return best(f"copy.{way}.{kind}", trials)


def _at(way: str, size: int, pinned: bool, seconds: float, job: Job) -> list[Trial]:
    """One size. A pageable copy blocks its caller: the device's events see all of it, if nothing leads it.

    The driver has one thread copy pageable memory; all of them, or half, through buffers are other ways.
    """
    here = gpu()
    device = here.torch.randint(0, 255, (size,), dtype=here.torch.uint8, device="cuda")
    host = here.torch.empty(size, dtype=here.torch.uint8, pin_memory=pinned)
    host.copy_(device)  # random bytes, and every page touched
    to, source = (device, host) if way == "h2d" else (host, device)
    if pinned:
        work = partial(to.copy_, source, non_blocking=True)
        return [here.trial({"bytes": size}, work, size, effort(job, seconds))]
    staged = Staged(here.torch, to, source)
    through = staged.to_device if way == "h2d" else staged.to_host
    every = here.torch.get_num_threads()
    ways: dict[str, Callable[[], object]] = {"driver": lambda: to.copy_(source)}
    ways |= {f"staged by {n}": partial(_by, here.torch, n, through) for n in {every, max(every // 2, 1)}}
    pace = effort(job, seconds / len(ways), lead_s=0.0)
    trials = [here.trial({"bytes": size, "way": name}, work, size, pace) for name, work in ways.items()]
    return [replace(trial, by_host=True) for trial in trials]


def _by(torch: Any, threads: int, work: Callable[[], None]) -> None:
    torch.set_num_threads(threads)
    work()


GAUGES = {
    f"copy.{way}.{kind}": partial(_measure, way, kind)
    for way in ("h2d", "d2h")
    for kind in ("pinned", "pageable")
}
