"""Trains with torch while its own profile function counts its calls, and raises in a module."""

import sys

import torch
from state import report

seen = []


def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        seen.append(frame.f_code.co_name)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, data):
        if data is None:
            raise ValueError("no data")
        return self.layer(data).sum()


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
sys.setprofile(profile)
for _ in range(120):
    model(torch.rand(2, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
print(len(seen), sys.getprofile() is profile)
sys.setprofile(None)
print(torch.rand(2).tolist())
report()
model(None)
