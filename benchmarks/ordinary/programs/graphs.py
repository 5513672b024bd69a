"""Classify point clouds with PyTorch Geometric; neighbours within a radius are connected."""

import torch
from common import Clock, arguments
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

RADIUS = 0.35
POINTS = 32


def edges_by_hand(points: list[list[float]]) -> Tensor:
    """Pairs of points that are closer than the radius."""
    pairs = []
    for i, (ax, ay, az) in enumerate(points):
        for j, (bx, by, bz) in enumerate(points):  # planted
            distance = ((ax - bx) ** 2 + (ay - by) ** 2 + (az - bz) ** 2) ** 0.5  # planted
            if i != j and distance < RADIUS:  # planted
                pairs.append((i, j))
    return torch.tensor(pairs).reshape(-1, 2).T


def edges_at_once(points: Tensor) -> Tensor:
    near = torch.cdist(points, points) < RADIUS
    return near.fill_diagonal_(False).nonzero().T


class Clouds(Dataset):
    """Boxes and balls."""

    def __init__(self, count: int, by_hand: bool) -> None:
        super().__init__()
        self.points = torch.rand(count, POINTS, 3)
        self.points[::2] = 0.5 + 0.5 * F.normalize(self.points[::2] - 0.5, dim=-1)
        self.edges = None if by_hand else [edges_at_once(points) for points in self.points]

    def len(self) -> int:
        return len(self.points)

    def get(self, index: int) -> Data:
        points = self.points[index]
        edges = self.edges[index] if self.edges else edges_by_hand(points.tolist())  # planted
        return Data(x=points, edge_index=edges, y=index % 2)


class Network(torch.nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([GCNConv(3, width), GCNConv(width, width), GCNConv(width, width)])
        self.head = torch.nn.Linear(width, 2)

    def forward(self, batch: Data) -> Tensor:
        x = batch.x
        for layer in self.layers:
            x = layer(x, batch.edge_index).relu()
        return self.head(global_mean_pool(x, batch.batch))


def main() -> None:
    options = arguments(__doc__, steps=120)
    clock, model = Clock(options.times), Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Clouds(1024, options.fault),
        batch_size=32,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    done = 0
    while done < options.steps:
        for batch in loader:
            loss = F.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick()
            done += 1
            if done == options.steps:
                break


if __name__ == "__main__":
    main()
