"""Copies between host and device, through pinned and through pageable memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fathom.gauges.gpu import GIB, effort, gpu
from fathom.gauges.job import Job
from fathom.gauges.timer import Effort
from fathom.gauges.trials import Trial, best
from fathom.machine import Ceiling

MIB = 2**20
SIZES = (16 * MIB, 64 * MIB, 256 * MIB)
FULL_SIZES = (MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
BUDGET_S = {"pinned": 1.0, "pageable": 2.5}  # the latter is as uneven as the host is busy


def _measure(way: str, kind: str, job: Job) -> Ceiling:
    chosen = FULL_SIZES if job.full else SIZES
    pinned = kind == "pinned"
    trials = [_at(way, size, pinned, BUDGET_S[kind] / len(chosen), job) for size in chosen]
    return best(f"copy.{way}.{kind}", trials)


def _at(way: str, size: int, pinned: bool, seconds: float, job: Job) -> Trial:
    """One size. A pageable copy blocks its caller: the device's events see all of it, if nothing leads it."""
    here = gpu()
    device = here.torch.randint(0, 255, (size,), dtype=here.torch.uint8, device="cuda")
    host = here.torch.empty(size, dtype=here.torch.uint8, pin_memory=pinned)
    host.copy_(device)  # random bytes, and every page touched
    to, source = (device, host) if way == "h2d" else (host, device)
    work = partial(to.copy_, source, non_blocking=pinned)
    pace = effort(job, seconds, lead_s=Effort.lead_s if pinned else 0.0)
    trial = here.trial({"bytes": size}, work, size, pace)
    return trial if pinned else replace(trial, by_host=True)


GAUGES = {
    f"copy.{way}.{kind}": partial(_measure, way, kind)
    for way in ("h2d", "d2h")
    for kind in ("pinned", "pageable")
}
