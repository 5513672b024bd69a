"""The gradient of each parameter is reduced alone, after the backward pass."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-small-messages",
    expected=["communication-small-messages"],
    forbidden=["communication-straggler", "communication-jitter", "communication-wide-gradients"],
    allowed=["communication-exposed", "communication-after-backward"],
    share=[0.154, 0.272, 0.431],
    why="50, 100, 200 collectives of 64 KB take 18 us each beside 5 ms of compute",
)


def build(form: str, severity: int) -> Job:
    count = (50, 100, 200)[severity - 1] if form == "faulty" else 1

    def step(job: Job) -> None:
        forward(job, 4, 400)
        backward(job, 4, 400)
        for _ in range(count):
            job.collective(
                "all_reduce", 64e3 if form == "faulty" else 6.4e6, us=18 if form == "faulty" else 50
            )
        job.follow()
        update(job)

    return Job(count=4).run(step)
