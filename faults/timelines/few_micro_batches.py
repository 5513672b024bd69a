"""A pipeline of four stages runs few micro-batches, so that stages wait for the first and the last one."""

from faults.labels import Fault
from faults.timelines.simulator import Job, product, update

FAULT = Fault(
    kind="communication-pipeline-bubble",
    expected=["communication-pipeline-bubble"],
    forbidden=[
        "communication-straggler",
        "communication-small-messages",
        "communication-jitter",
        "communication-slow-group",
    ],
    allowed=["communication-exposed"],
    share=[0.085, 0.205, 0.318],
    why="of p = 4 stages and m = 10, 6, 4 micro-batches, a share of 3 / (m + 3) of each stage's time is idle",
)


WORK_US = 32_000


def build(form: str, severity: int) -> Job:
    parts = (10, 6, 4)[severity - 1] if form == "faulty" else 16

    def step(job: Job) -> None:
        for back in (False, True):
            stages = list(range(job.count))[:: -1 if back else 1]
            for _ in range(parts):
                for place, stage in enumerate(stages):
                    us = WORK_US / parts / 3 * (2 if back else 1)
                    for _ in range(4):
                        product(job.ranks[stage], us / 4, backward=back)
                    if place + 1 < len(stages):
                        job.send(stage, stages[place + 1], 1e6, back)
        update(job)

    return Job(count=4).run(step)
