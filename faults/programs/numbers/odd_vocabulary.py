"""Train with a vocabulary of 50,257 words.

The user believes that the tokenizer decides the size of the last layer. Rows of an odd number of bfloat16
values begin off every boundary, so its three products take slow kernels; 50,304 rows of weights, the last
never used, don't.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="numbers-odd-vocabulary",
    expected=["numbers-odd-vocabulary"],
    forbidden=["kernels-tf32-off", "kernels-unfused-loss", "kernels-batch-too-small"],
    allowed=["kernels-tensor-cores-idle"],
    share=[0.25, 0.4, 0.5],
    why=(
        "products of the last layer take about three times as long, and are most of the work after 8, 4, "
        "2 layers"
    ),
    needs={"gpu": True},
    agree=5e-2,
)


def main(options):
    width, batch = options.size(2048, 32), options.size(8192, 16)
    words = options.size(50257, 57)
    vocabulary = words if options.faulty else -(-words // 64) * 64
    model = tower(width, options.size(options.by(8, 4, 2), 1), vocabulary).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(words, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
