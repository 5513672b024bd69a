"""A deep, very thin network: hundreds of tiny kernels a step, which the host cannot launch fast enough."""

import torch
from common import Stopwatch, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.linear(self.norm(x)))


def main() -> None:
    parser = arguments(__doc__, steps=1500)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    width = 32
    model = nn.Sequential(*(Layer(width) for _ in range(options.layers))).to(options.device)
    forward = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(64, 16, width, device=options.device)
    watch = Stopwatch()
    for step in range(options.steps):
        loss = F.mse_loss(forward(data[step % 64]), data[(step + 1) % 64])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
