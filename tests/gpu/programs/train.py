"""A small training loop. PLANT=python:10, sleep:10, loader:10, checkpoint:10 (ms) or item plants a delay."""

import io
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

kind, _, amount = os.environ.get("PLANT", "").partition(":")
delay_s = float(amount or 0) / 1e3


class Noise(Dataset):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if kind == "loader":
            time.sleep(delay_s)
        return torch.full((32, 512), float(index % 7))


def spend() -> None:
    """Keep the processor busy."""
    until = time.perf_counter() + delay_s
    while time.perf_counter() < until:
        pass


class SlowFile(io.BytesIO):
    slept = False

    def write(self, data: bytes) -> int:
        if not self.slept:
            time.sleep(delay_s)
            self.slept = True
        return super().write(data)


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    busy = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for step, batch in enumerate(DataLoader(Noise(), batch_size=None)):
        if step == 240:  # counters come after the timeline
            break
        x = batch.cuda()
        if kind == "item":
            for _ in range(8):
                busy @ busy
        loss = model(x).square().mean()
        if kind == "item":
            loss.item()
        if kind in ("python", "sleep"):
            torch.cuda.synchronize()
            spend() if kind == "python" else time.sleep(delay_s)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if kind == "checkpoint":
            torch.cuda.synchronize()
            torch.save({"step": step}, SlowFile())


main()
