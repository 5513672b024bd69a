"""Gradients are reduced at once after the backward pass, in which nothing was reduced."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-after-backward",
    expected=["communication-after-backward"],
    forbidden=["communication-small-messages", "communication-straggler", "communication-jitter"],
    allowed=["communication-exposed"],
    share=[0.115, 0.197, 0.318],
    why="8 buckets of 20, 40, 80 MB at 350 GB/s, of which the backward pass of 6.4 ms could hide 7",
)


def build(form: str, severity: int) -> Job:
    size = (40e6, 80e6, 160e6)[severity - 1]

    def step(job: Job) -> None:
        forward(job, 8, 400)
        if form == "faulty":
            backward(job, 8, 400)
            for _ in range(8):
                job.collective("all_reduce", size)
            job.follow()
        else:
            backward(job, 8, 400, size)
        update(job)

    return Job(count=4).run(step)
