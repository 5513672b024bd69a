"""Train a small convolutional model from a loader, and print which settings are in place."""

import gc
import json
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
steps = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(steps * 2, 3, 8, 8), torch.randint(0, 2, (steps * 2,)))
loader = DataLoader(data, 2)
for x, y in loader:
    logits = model(x)
    loss = torch.nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(
    json.dumps(
        {
            "workers": loader.num_workers,
            "fused": optimizer.defaults["fused"],
            "channels_last": model[0].weight.is_contiguous(memory_format=torch.channels_last),
            "dtype": str(logits.dtype),
            "frozen": gc.get_freeze_count() > 0,
            "precision": torch.get_float32_matmul_precision(),
            "variable": os.environ.get("MALLOC_TOP_PAD_"),
            "loss": float(loss),
        }
    )
)
