"""Puts the secrets on its command line into names, URLs, a thread, and the exception that ends it."""

import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset

SECRETS = sys.argv[1:]


class Samples(Dataset):
    def __init__(self, url):
        self.url = url

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.ones(16)

    def __repr__(self):
        return f"Samples({self.url})"


def step(model, optimizer, batch, token):
    with torch.profiler.record_function(f"GET https://user:{token}@host/v1?api_key={token} {token}"):
        model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


threading.current_thread().name = f"worker {SECRETS[0]}"
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for turn in range(3):
    for number, batch in enumerate(DataLoader(Samples(f"s3://{SECRETS[1]}@bucket"), batch_size=2)):
        step(model, optimizer, batch, SECRETS[(32 * turn + number) % len(SECRETS)])
raise RuntimeError("cannot reach " + " ".join(SECRETS))
