"""Train a click model on a log of impressions, one JSON object per line.

python train.py --losses losses.json
"""

import argparse
import json
import random
import zlib
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

LOG = Path("impressions.jsonl")
FIELDS, BUCKETS, ROWS = 24, 5000, 16384


def write_log() -> None:
    """Write a synthetic log: 24 fields per impression, and whether the user clicked."""
    draw = random.Random(0)
    rows = ({f"field{i}": f"value{draw.randrange(900)}" for i in range(FIELDS)} for _ in range(ROWS))
    LOG.write_text("\n".join(json.dumps({"fields": row, "clicked": draw.random() < 0.3}) for row in rows))


def hashed(line: str) -> tuple[list[int], bool]:
    """Return the bucket of each field, and whether the user clicked."""
    row = json.loads(line)
    return [zlib.crc32(f"{k}={v}".encode()) % BUCKETS for k, v in row["fields"].items()], row["clicked"]


class Impressions(Dataset):
    def __init__(self) -> None:
        rows = [hashed(line) for line in LOG.read_text().splitlines()]
        self.fields = torch.tensor([fields for fields, _ in rows])
        self.clicked = torch.tensor([float(clicked) for _, clicked in rows])

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.fields[index], self.clicked[index]


class ClickModel(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BUCKETS, width)
        self.head = nn.Sequential(nn.Linear(FIELDS * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, fields: Tensor) -> Tensor:
        return self.head(self.embedding(fields).flatten(1))[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--losses", type=Path, help="write the losses to this file, as JSON")
    options = parser.parse_args()
    if not LOG.exists():
        write_log()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads of so small a model would only wait for each other
    model, losses = ClickModel(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Impressions()
    order = RandomSampler(data, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(data, batch_size=256, sampler=order, drop_last=True)
    epochs = (batch for _ in range(options.steps) for batch in loader)
    for step, (fields, clicked) in enumerate(islice(epochs, options.steps), start=1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(fields), clicked.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 500 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    if options.losses:
        options.losses.write_text(json.dumps({"loss": losses}))


if __name__ == "__main__":
    main()
