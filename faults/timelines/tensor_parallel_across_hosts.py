"""Tensor parallelism spans two hosts, and data parallelism stays within each."""

from faults.labels import Fault
from faults.timelines.simulator import Job, product, update

FAULT = Fault(
    kind="communication-slow-group",
    expected=["communication-slow-group"],
    forbidden=["communication-straggler", "communication-small-messages", "communication-jitter"],
    allowed=["communication-exposed"],
    share=[0.13, 0.219, 0.347],
    why="activations of 4, 8, 16 MB per layer take the network's 40 GB/s instead of NVLink's 350",
)


def build(form: str, severity: int) -> Job:
    size = (4e6, 8e6, 16e6)[severity - 1]
    hosts, across = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    tensor, data = (across, hosts) if form == "faulty" else (hosts, across)

    def step(job: Job) -> None:
        for us in [400] * 6 + [800] * 6:
            for rank in job.ranks:
                product(rank, us, backward=us > 400)
            for members in tensor:
                job.collective("all_reduce", size, members=members, group="tensor", backward=us > 400)
            job.follow()
        for members in data:
            job.collective("all_reduce", 2e6, members=members, group="data")
        job.follow()
        update(job)

    return Job(count=4, hosts=2).run(step)
