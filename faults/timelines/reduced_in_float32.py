"""Gradients are reduced in float32, although the model computes in bfloat16."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-wide-gradients",
    expected=["communication-wide-gradients"],
    forbidden=["communication-straggler", "communication-small-messages", "communication-jitter"],
    allowed=["communication-exposed", "communication-after-backward"],
    share=[0.084, 0.228, 0.378],
    why="8 buckets of 80, 120, 200 MB in float32 beside a backward pass of 4.8 ms; bfloat16 halves the bytes",
)


def build(form: str, severity: int) -> Job:
    size, dtype = (150e6, 200e6, 300e6)[severity - 1], "fp32"
    if form == "mended":
        size, dtype = size / 2, "bf16"

    def step(job: Job) -> None:
        forward(job, 8, 300)
        backward(job, 8, 300, size, dtype=dtype)
        update(job)

    return Job(count=4).run(step)
