"""DistributedDataParallel searches for unused parameters in each step, though there are none."""

from faults.labels import Fault
from faults.timelines.simulator import Job, backward, forward, update

FAULT = Fault(
    kind="communication-unused-parameters",
    expected=["communication-unused-parameters"],
    forbidden=["communication-straggler", "communication-small-messages", "communication-jitter"],
    allowed=["host-launch-bound", "host-python", "communication-exposed"],
    share=[0.106, 0.175, 0.285],
    why="the search takes 400, 800, 1600 us of host time before each backward pass, while the device is idle",
)


def build(form: str, severity: int) -> Job:
    parameters = (500, 1000, 2000)[severity - 1]

    def step(job: Job) -> None:
        for rank in job.ranks:
            rank.synchronise()
        forward(job, 8, 100)
        if form == "faulty":
            for rank in job.ranks:
                start, end = rank.spend(800 + 0.8 * parameters)
                rank.op("DistributedDataParallel.forward", start - 100_000, end, kind="annotation")
        backward(job, 8, 200, 10e6, 4)
        if form == "faulty":
            job.collective("all_reduce", 4 * parameters, "int32", us=20, backward=True)
            job.follow()
        update(job)

    return Job(count=4).run(step)
