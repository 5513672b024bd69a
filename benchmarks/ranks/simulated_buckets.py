"""`fathom what-if bucket=SIZE` against simulated jobs with that size.

    python -m benchmarks.ranks.simulated_buckets

Backward passes of 24 layers reduce their gradients in buckets of some layers. One job is recorded, and the
other predicted. Prints a line per pair, and how many predictions are right.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import fathom
from faults.timelines.simulator import Job, forward, product, update

LAYERS, RANKS, WITHIN, ROUNDING = 24, 4, 0.05, 0.005
LINKS = ((1, 2e6), (2, 2e6), (1, 20e6), (2, 20e6), (1, 0.05e6), (2, 0.1e6))  # hosts, bytes of a layer
BUCKETS = ((1, 8), (1, 24), (4, 24), (24, 1), (24, 4), (8, 1), (5, 24))  # layers, recorded and predicted
LAYER_US = (10, 100)


def training(gradient: float, layers: int, hosts: int, us: float) -> Job:
    """A job whose buckets hold the gradients of `layers` layers, each of `gradient` bytes."""

    def step(job: Job) -> None:
        forward(job, LAYERS, us)
        for layer in range(1, LAYERS + 1):
            for rank in job.ranks:
                product(rank, 2 * us, backward=True)
            if layer % layers == 0 or layer == LAYERS:
                job.collective("all_reduce", ((layer - 1) % layers + 1) * gradient, backward=True)
        job.follow()
        update(job)

    return Job(count=RANKS, hosts=hosts).run(step)


def main() -> None:
    near, holds = [], []
    for (hosts, gradient), (before, after), us in itertools.product(LINKS, BUCKETS, LAYER_US):
        job = training(gradient, before, hosts, us)
        with tempfile.TemporaryDirectory() as folder:
            job.write(Path(folder) / "job.fathom")
            seen = fathom.open(Path(folder) / "job.fathom").what_if(f"bucket={after * gradient / 1e6:g}MB")
        truth = training(gradient, after, hosts, us).step_ms / job.step_ms
        assert seen.clean_ms and seen.clean_predicted_ms and seen.clean_ci_ms
        predicted, low, high = (ms / seen.clean_ms for ms in (seen.clean_predicted_ms, *seen.clean_ci_ms))
        near.append(abs(predicted - truth) <= WITHIN)
        holds.append(low - ROUNDING <= truth <= high + ROUNDING)
        case = f"{hosts} hosts, {gradient / 1e6:g} MB, {us} µs a layer, {before} to {after} layers"
        print(f"{case}: {truth:.3f}, predicted {predicted:.3f} ({low:.3f} to {high:.3f})")
    print(f"{sum(near)} of {len(near)} within {WITHIN:.0%} of the step; {sum(holds)} intervals hold")


if __name__ == "__main__":
    main()
