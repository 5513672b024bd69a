"""Metrics are reduced and read by the host, one after the other, in each step."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-synchronous",
    expected=["communication-synchronous"],
    forbidden=["communication-straggler", "communication-jitter", "communication-wide-gradients"],
    allowed=[
        "communication-exposed",
        "communication-small-messages",
        "host-sync-item",
        "host-sync-explicit",
        "host-launch-bound",
    ],
    share=[0.121, 0.216, 0.356],
    why="10, 20, 40 values are reduced and read for about 45 us each, in which the device is idle",
)


def build(form: str, severity: int) -> Job:
    values = (15, 30, 60)[severity - 1]

    def step(job: Job) -> None:
        forward(job, 8, 300)
        if form == "faulty":
            for _ in range(values):
                job.collective("all_reduce", 4, "fp32", us=12)
                for rank in job.ranks:
                    rank.item()
                    rank.spend(25)
        else:
            job.collective("all_reduce", 4 * values, "fp32", us=12)
        backward(job, 8, 300, 20e6, 2)
        update(job)

    return Job(count=4).run(step)
