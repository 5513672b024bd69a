"""The ranks are interrupted by turns, and the others wait for the one that is."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-jitter",
    expected=["communication-jitter"],
    forbidden=["communication-straggler", "communication-straggler-compute", "communication-straggler-host"],
    allowed=["communication-exposed"],
    share=[0.153, 0.265, 0.419],
    why="one rank loses 0 to 4, 8, 16 ms in each step of about 11 ms",
)


def build(form: str, severity: int) -> Job:
    most_us = (4000, 8000, 16000)[severity - 1] if form == "faulty" else 0

    def step(job: Job) -> None:
        interrupted = len(job.steps_ns) % job.count
        for rank in job.ranks:
            rank.synchronise()
            rank.spend(job.draw.random() * most_us if rank.number == interrupted else 0)
        forward(job, 8, 400)
        backward(job, 8, 400, 50e6, 2)
        update(job)

    return Job(count=4).run(step)
