"""Sharded parameters are gathered when a layer needs them, not while the layer before computes."""

from faults.labels import Fault
from faults.timelines.simulator import Job, product, update

FAULT = Fault(
    kind="communication-gathers-late",
    expected=["communication-gathers-late"],
    forbidden=[
        "communication-straggler",
        "communication-small-messages",
        "communication-jitter",
        "communication-after-backward",
    ],
    allowed=["communication-exposed"],
    share=[0.271, 0.353, 0.419],
    why="each of 8 layers waits for 100, 200, 400 MB of parameters, in both passes",
)


def build(form: str, severity: int) -> Job:
    size, ahead = (100e6, 150e6, 200e6)[severity - 1], form == "mended"

    def step(job: Job) -> None:
        passes = [(400, False)] * 8 + [(800, True)] * 8
        if ahead:
            job.collective("all_gather", size, after=())
            job.follow()
        for number, (us, back) in enumerate(passes):
            if not ahead:
                job.collective("all_gather", size, after=(7,), backward=back)
                job.follow()
            for rank in job.ranks:
                product(rank, us, backward=back)
            if ahead and number + 1 < len(passes):
                job.collective("all_gather", size, after=(), backward=back)
                job.follow()
        update(job)

    return Job(count=4).run(step)
