"""Asks for one more timeline burst after 80 of its steps: `triggered.py RAW`."""

import sys
import time
from pathlib import Path

import torch
from by_hand import SGD

model = torch.nn.Linear(8, 8)
optimizer = SGD(model.parameters(), lr=1e-3)
for step in range(120):
    if step == 80:
        (Path(sys.argv[1]) / "trigger").touch()
        time.sleep(0.25)
    if step == 110:
        time.sleep(0.05)
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.004)  # steps that all take the same time
