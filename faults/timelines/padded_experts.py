"""Tokens are padded to each expert's capacity before they are exchanged."""

from faults.labels import Fault
from faults.timelines.simulator import Job, forward, update

FAULT = Fault(
    kind="communication-padded-tokens",
    expected=["communication-padded-tokens"],
    forbidden=[
        "communication-straggler",
        "communication-small-messages",
        "communication-jitter",
        "communication-unbalanced-experts",
    ],
    allowed=["communication-exposed"],
    share=[0.275, 0.432, 0.603],
    why=(
        "capacity factors of 1.5, 2, 3 multiply the bytes of 16 exchanges between hosts, and 0.2 ms "
        "of expert compute each"
    ),
)


TOKENS, WIDTH, TOP = 8192, 4096, 1


def build(form: str, severity: int) -> Job:
    capacity = (1.5, 2.0, 3.0)[severity - 1] if form == "faulty" else 1.0

    def step(job: Job) -> None:
        for back in (False, True):
            for _ in range(4):
                forward(job, 1, 800)
                for rank in job.ranks:
                    shapes, types = (
                        f"[[{TOKENS}, 64], [], [], [], []]",
                        '["c10::BFloat16", "Scalar", "Scalar", "", ""]',
                    )
                    values = f'["", "{TOP}", "-1", "True", "True"]'
                    rank.launch("topk", 10, "aten::topk", shapes=shapes, dtypes=types, values=values)
                for part in range(2):
                    size = 2 * capacity * TOKENS * TOP * WIDTH
                    job.collective("all_to_all", size, group="experts", backward=back)
                    job.follow()
                    if part == 0:
                        forward(job, 1, 300 * capacity)
        update(job)

    return Job(count=4, hosts=2).run(step)
