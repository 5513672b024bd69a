"""Train a recommender: many tables of embeddings, their interactions, and small networks on both sides."""

import argparse
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

SIZES = {"cpu": (6, 500, 8, 64), "cuda": (26, 50_000, 64, 2048)}  # tables, rows, width and batch
DENSE, BATCHES = 13, 32


def layers(*widths: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Recommender(nn.Module):
    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = layers(DENSE, 4 * width, 2 * width, width)
        pairs = (tables + 1) * tables // 2
        self.top = layers(width + pairs, 8 * width, 4 * width, width, 1)
        self.register_buffer("upper", torch.triu_indices(tables + 1, tables + 1, 1))

    def forward(self, dense: Tensor, names: Tensor) -> Tensor:
        x = self.dense(dense)
        looked = [x, *(table(names[:, i]) for i, table in enumerate(self.tables))]
        features = torch.stack(looked, 1)
        products = features @ features.transpose(1, 2)
        first, other = self.upper
        return self.top(torch.cat([x, products[:, first, other]], 1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    tables, rows, width, batch = SIZES[options.device]
    model = Recommender(tables, rows, width).to(options.device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    dense = torch.randn(BATCHES, batch, DENSE)
    names = torch.randint(rows, (BATCHES, batch, tables))
    clicked = (dense.mean(2) + torch.randn(BATCHES, batch) > 0).float()
    for step in range(options.steps):
        inputs = (each[step % BATCHES].to(options.device) for each in (dense, names, clicked))
        numbers, rows_of, wanted = inputs
        loss = F.binary_cross_entropy_with_logits(model(numbers, rows_of), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
