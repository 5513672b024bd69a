"""One rank of a job gets longer documents than the others."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-straggler-compute",
    expected=["communication-straggler-compute"],
    forbidden=["communication-straggler-clocks", "communication-straggler-host", "communication-jitter"],
    allowed=["communication-exposed"],
    share=[0.16, 0.323, 0.489],
    why="its kernels take 1.2, 1.5, 2 times as long at full clocks, and nearly all of the step is compute",
)


def build(form: str, severity: int) -> Job:
    slower = {1: (1.2, 1.5, 2.0)[severity - 1] if form == "faulty" else 1.0}

    def step(job: Job) -> None:
        forward(job, 8, 400, slower)
        backward(job, 8, 400, 50e6, 2, slower)
        update(job)

    return Job(count=4).run(step)
