"""Convert to float32 and back around every layer, "for stability".

The user believes that a cast is free. Each one reads and writes the whole activation, forwards and backwards,
and the layer between them needs none.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-needless-casts",
    expected=["kernels-needless-casts"],
    forbidden=["kernels-no-mixed-precision", "kernels-tf32-off", "kernels-transposes"],
    allowed=["kernels-unfused-elementwise"],
    share=[0.15, 0.3, 0.4],
    why=(
        "a pair of casts moves 12 bytes a number each way, about 0.1 ms for 34 M numbers; 1, 3, 5 pairs a "
        "layer of 1.2 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Cast(nn.Module):
    def forward(self, x):
        return x.float().to(x.dtype) if x.dtype.itemsize < 4 else x.double().to(x.dtype)


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    layers = list(tower(width, options.size(4, 2)))
    if options.faulty:
        casts = options.by(1, 3, 5)
        layers = [item for layer in layers for item in (layer, *(Cast() for _ in range(casts)))]
    model = nn.Sequential(*layers).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
