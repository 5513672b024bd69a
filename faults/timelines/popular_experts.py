"""The experts of one rank get more tokens than those of the others."""

from faults.labels import Fault
from faults.timelines.simulator import Job, forward, update

FAULT = Fault(
    kind="communication-unbalanced-experts",
    expected=["communication-unbalanced-experts"],
    forbidden=[
        "communication-straggler-host",
        "communication-small-messages",
        "communication-jitter",
        "communication-padded-tokens",
    ],
    allowed=["communication-exposed", "communication-straggler-compute", "communication-straggler"],
    share=[0.206, 0.342, 0.509],
    why=(
        "one rank computes 1.5, 2, 3 times the mean number of tokens in its experts, which take half "
        "of the step"
    ),
)


TOKENS, WIDTH = 8192, 4096


def build(form: str, severity: int) -> Job:
    most = (1.5, 2.0, 3.0)[severity - 1] if form == "faulty" else 1.0
    loads = {rank: most if rank == 1 else (4 - most) / 3 for rank in range(4)}

    def step(job: Job) -> None:
        for back in (False, True):
            for _ in range(4):
                forward(job, 1, 400)
                sizes = {rank: 2.0 * TOKENS * WIDTH * load for rank, load in loads.items()}
                job.collective(
                    "all_to_all", 2 * TOKENS * WIDTH, group="experts", received=sizes, backward=back
                )
                job.follow()
                forward(job, 1, 800, loads)
                job.collective("all_to_all", 2 * TOKENS * WIDTH, group="experts", sent=sizes, backward=back)
                job.follow()
        update(job)

    return Job(count=4).run(step)
