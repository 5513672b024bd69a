"""Train an LSTM that is written out by hand, cell by cell: about 50,000 profiler events a step."""

import torch
from common import Stopwatch, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class HandWrittenLSTM(nn.Module):
    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(symbols, width)
        self.gates = nn.Linear(2 * width, 4 * width)
        self.head = nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = cell = torch.zeros(len(tokens), self.width, device=tokens.device)
        loss = hidden.new_zeros(())
        for place in range(tokens.shape[1] - 1):
            gates = self.gates(torch.cat([self.embedding(tokens[:, place]), hidden], dim=1))
            keep, write, read, new = gates.chunk(4, dim=1)
            cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
            hidden = read.sigmoid() * cell.tanh()
            loss = loss + F.cross_entropy(self.head(hidden), tokens[:, place + 1])
        return loss / (tokens.shape[1] - 1)


def main() -> None:
    parser = arguments(__doc__, steps=80)
    parser.add_argument(
        "--length", type=int, help="places in a sequence; each is 200 events on the CPU, 280 on a GPU"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    full = 180 if options.device.startswith("cuda") else 250
    length = options.length or (20 if options.small else full)
    model = HandWrittenLSTM(symbols=128, width=64).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randint(128, (16, 8, length + 1), device=options.device)
    watch = Stopwatch()
    for step in range(options.steps):
        loss = model(data[step % 16])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
