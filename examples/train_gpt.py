"""Train a small GPT on the bytes of a book.

python examples/train_gpt.py                    # a GPU if there is one, else the CPU
python examples/train_gpt.py --steps 500 --compile
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, RandomSampler

BOOK = Path(__file__).parent / "data" / "moby-dick.txt"
BYTES = 256
# Sizes that keep the device busy for a while; the model is the same.
DEFAULTS = {
    "cuda": {"steps": 600, "batch": 64, "context": 512},
    "cpu": {"steps": 100, "batch": 8, "context": 128},
}


class Crops(Dataset):
    """Windows of the book at random places; a target is its input, one byte later."""

    def __init__(self, path: Path, context: int) -> None:
        self.book = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return len(self.book) - self.context - 1

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        crop = self.book[start : start + self.context + 1].long()
        return crop[:-1], crop[1:]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, context: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(BYTES, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        self.apply(self._initialise)
        self.head.weight = self.tokens.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(place)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--context", type=int)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--times", type=Path, help="write the step times to this file, as JSON")
    options = parser.parse_args()
    for name, value in DEFAULTS[torch.device(options.device).type].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def batches(options: argparse.Namespace) -> DataLoader:
    book = Crops(BOOK, options.context)
    places = RandomSampler(book, replacement=True, num_samples=options.steps * options.batch)
    pin = options.device.startswith("cuda")
    return DataLoader(book, options.batch, sampler=places, num_workers=options.workers, pin_memory=pin)


def train(options: argparse.Namespace) -> list[float]:
    """Run the training and return the time of each step in seconds."""
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    model = GPT(options.context, options.layers, options.width, options.heads).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters on {device}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95), fused=on_gpu)
    forward = torch.compile(model) if options.compile else model
    ticks = [time.perf_counter()]
    for step, (tokens, targets) in enumerate(batches(options), start=1):
        tokens, targets = tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == options.steps:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
        ticks.append(time.perf_counter())
    return [after - before for before, after in pairwise(ticks)]


def main() -> None:
    torch.manual_seed(0)
    options = parse()
    times = train(options)
    if options.times:
        options.times.write_text(json.dumps({"steps_s": times, "total_s": sum(times)}))


if __name__ == "__main__":
    main()
