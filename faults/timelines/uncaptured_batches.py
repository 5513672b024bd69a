"""Decodes of up to eight requests run as CUDA graphs; larger batches launch each of their kernels."""

from faults.labels import Fault
from faults.timelines.simulator import Job

FAULT = Fault(
    kind="host-graph-sizes",
    expected=["host-graph-sizes"],
    forbidden=["host-launch-bound", "host-python", "host-blocked"],
    allowed=["host-sync-explicit"],
    share=[0.456, 0.626, 0.726],
    why="one decode in four, one in two, four in five launch 200 kernels of 4 us, 20 us each, from the host",
)
BATCHES = ((4, 6, 8, 12), (4, 12), (8, 12, 14, 16, 10))  # of each severity, in turn
CAPTURED = 8  # the largest batch that has a graph
KERNELS, US, DISPATCH_US = 200, 4.0, 8.0
NAME = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"


def build(form: str, severity: int) -> Job:
    batches, number = BATCHES[severity - 1], 0

    def step(job: Job) -> None:
        nonlocal number
        job.samples, number = batches[number % len(batches)], number + 1
        for rank in job.ranks:
            if form == "mended" or job.samples <= CAPTURED:
                rank.replay([US] * KERNELS, NAME)
            else:
                for _ in range(KERNELS):
                    start, _ = rank.spend(DISPATCH_US)
                    rank.launch(NAME, US)
                    rank.op("aten::linear", start, rank.now)
            rank.synchronise()

    return Job(count=1, kind="decode").run(step)
