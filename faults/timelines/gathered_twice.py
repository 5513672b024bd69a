"""Sharded parameters are freed after the forward pass and gathered again, though memory has room."""

from faults.labels import Fault
from faults.timelines.simulator import Job, product, update

FAULT = Fault(
    kind="communication-gathered-twice",
    expected=["communication-gathered-twice"],
    forbidden=[
        "communication-straggler",
        "communication-small-messages",
        "communication-jitter",
        "communication-after-backward",
    ],
    allowed=["communication-exposed", "communication-gathers-late", "communication-slow-group"],
    share=[0.21, 0.467, 0.5],
    why=(
        "the second gathers of 8 layers move 60, 90, 120 MB each over the network, of which compute "
        "hides 0.8 ms"
    ),
)


def build(form: str, severity: int) -> Job:
    size = (40e6, 60e6, 90e6)[severity - 1]

    def step(job: Job) -> None:
        for number in range(16):
            back = number >= 8
            if not back or form == "faulty":
                job.collective("all_gather", size, after=(), backward=back)
                job.follow()
            for rank in job.ranks:
                product(rank, 800 if back else 400, backward=back)
        update(job)

    return Job(count=4, hosts=2).run(step)
