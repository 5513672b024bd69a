"""One GPU of a job runs at low clocks, because it is hot."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-straggler-clocks",
    expected=["communication-straggler-clocks"],
    forbidden=["communication-straggler-compute", "communication-straggler-host", "communication-jitter"],
    allowed=["communication-exposed", "device-thermal"],
    share=[0.16, 0.323, 0.489],
    why="its kernels take 1.2, 1.5, 2 times as long, and nearly all of the step is compute",
)


def build(form: str, severity: int) -> Job:
    slower = {2: (1.2, 1.5, 2.0)[severity - 1] if form == "faulty" else 1.0}

    def step(job: Job) -> None:
        forward(job, 8, 400, slower)
        backward(job, 8, 400, 50e6, 2, slower)
        update(job)

    job = Job(count=4)
    job.ranks[2].clock_mhz = round(1980 / slower[2])
    return job.run(step)
