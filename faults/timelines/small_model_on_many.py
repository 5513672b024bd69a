"""A model that fits one GPU is decoded over several, whose all-reduces take longer than what they save."""

import json

from faults.labels import Fault
from faults.timelines.simulator import Job

FAULT = Fault(
    kind="communication-wide-tensor-parallel",
    expected=["communication-wide-tensor-parallel"],
    forbidden=["communication-straggler", "communication-small-messages", "communication-slow-group"],
    allowed=["communication-exposed", "kernels-weight-bound-decode", "host-sync-explicit"],
    share=[0.558, 0.666, 0.782],
    why="two all-reduces of 70, 110, 180 us a layer, where one GPU reads 2, 4, 4 times the bytes at 4.2 TB/s",
)
LAYERS, WIDTH, NORM_US, FIXED_US, RATE = 16, 8192, 3.0, 6.0, 4.2e12
BF16 = "c10::BFloat16"


def build(form: str, severity: int) -> Job:
    ranks, us = ((2, 70), (4, 110), (4, 180))[severity - 1]
    parts = ranks if form == "faulty" else 1
    part = WIDTH // parts
    shapes = json.dumps([[8, WIDTH], [WIDTH, part]])
    took = FIXED_US + 2 * WIDTH * part / RATE * 1e6

    def step(job: Job) -> None:
        for _ in range(2 * LAYERS):
            for rank in job.ranks:
                types = json.dumps([BF16, BF16])
                rank.launch("vectorized_layer_norm_kernel", NORM_US, "aten::native_layer_norm")
                rank.launch("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", took, shapes=shapes, dtypes=types)
            if parts > 1:
                job.collective("all_reduce", 2 * 8 * WIDTH, us=us)
                job.follow()
        for rank in job.ranks:
            rank.synchronise()

    return Job(count=parts, kind="decode").run(step)
