"""One rank of a job waits for its data, while the others have theirs."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-straggler-input",
    expected=["communication-straggler-input"],
    forbidden=["communication-straggler-compute", "communication-straggler-clocks", "communication-jitter"],
    allowed=["communication-exposed"],
    share=[0.228, 0.372, 0.543],
    why="its loader delays the start of each step by 3, 6, 12 ms; the step takes about 11 ms",
)


def build(form: str, severity: int) -> Job:
    delay_us = (3000, 6000, 12000)[severity - 1] if form == "faulty" else 20

    def step(job: Job) -> None:
        for rank in job.ranks:
            rank.synchronise()
            rank.wait("input", delay_us if rank.number == 3 else 20)
        forward(job, 8, 400)
        backward(job, 8, 400, 50e6, 2)
        update(job)

    return Job(count=4).run(step)
