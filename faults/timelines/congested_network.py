"""The same all-reduce takes much longer in some steps, because other jobs use the network."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-jitter",
    expected=["communication-jitter"],
    forbidden=["communication-straggler", "communication-small-messages", "communication-slow-group"],
    allowed=["communication-exposed"],
    share=[0.204, 0.339, 0.507],
    why="one of four buckets takes 0 to 4, 8, 16 ms longer",
)


def build(form: str, severity: int) -> Job:
    most_us = (6000, 12000, 24000)[severity - 1] if form == "faulty" else 0

    def step(job: Job) -> None:
        forward(job, 8, 400)
        backward(job, 6, 400, 10e6, 2)
        size = 10e6
        job.collective("all_reduce", size, us=700 + job.draw.random() ** 2 * most_us)
        job.follow()
        update(job)

    return Job(count=4, hosts=2).run(step)
