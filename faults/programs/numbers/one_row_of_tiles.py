"""Score batches of a size that leaves a last, nearly empty wave.

The user believes that time grows with rows. It grows in steps: 132 multiprocessors take 132 tiles at a time,
and the row of tiles that is one too many takes as long as all before it.
"""

import torch

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="numbers-tile-size",
    expected=["numbers-tile-size"],
    forbidden=["kernels-batch-too-small", "kernels-low-occupancy", "numbers-odd-size"],
    allowed=["kernels-wave-quantisation"],
    share=[0.08, 0.11, 0.2],
    why=(
        "of 12 rows of tiles of 128 x 256 a wave, one more after 4, 2, 1 waves: cuBLAS then takes others, "
        "192 x 192 after 2, and loses 8 % to overhang and the last wave, and 4 % to the rows"
    ),
    needs={"gpu": True},
)


@torch.no_grad()
def main(options):
    width, waves = options.size(11 * 256, 32), options.by(4, 2, 1)
    rows = options.size(128 * 12 * waves, 16) + (options.size(128, 4) if options.faulty else 0)
    model = tower(width, 24 if not options.small else 2).to(options.device, options.dtype)
    values = options.normal(rows, width)
    for _ in options.laps():
        scores = model(values)
    return scores.float().square().mean()


if __name__ == "__main__":
    start(main)
