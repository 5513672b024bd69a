"""Each layer of a tensor-parallel model waits for its all-reduce before the next one starts."""

from faults.labels import Fault
from faults.timelines.simulator import Job, product, update

FAULT = Fault(
    kind="communication-exposed",
    expected=["communication-exposed"],
    forbidden=[
        "communication-straggler",
        "communication-small-messages",
        "communication-jitter",
        "communication-after-backward",
    ],
    allowed=["communication-slow-group"],
    share=[0.11, 0.185, 0.299],
    why=(
        "16, 32, 64 MB of activations per layer, reduced in the forward and the backward pass beside "
        "products of 0.4 and 0.8 ms"
    ),
)


def build(form: str, severity: int) -> Job:
    size = (16e6, 32e6, 64e6)[severity - 1]

    def step(job: Job) -> None:
        for us in [400] * 8 + [800] * 8:
            for rank in job.ranks:
                product(rank, us, backward=us > 400)
            job.collective("all_reduce", size, backward=us > 400)
            if form == "faulty":
                job.follow()
        job.follow()
        update(job)

    return Job(count=4).run(step)
