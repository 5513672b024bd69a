"""Fit a regression with accelerate, and report the loss to a tracking server."""

import http.client
import json
import subprocess
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from common import Clock, arguments
from loading import loader_of
from torch import nn
from torch.utils.data import DataLoader


class ServerTracker(GeneralTracker):
    """Posts what is logged to a server, and waits for its answer."""

    name = "server"
    requires_logging_directory = False

    def __init__(self, port: int) -> None:
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    @property
    def tracker(self) -> http.client.HTTPConnection:
        return self.connection

    @on_main_process
    def store_init_configuration(self, values: dict) -> None:
        pass

    @on_main_process
    def log(self, values: dict, step: int | None = None, **_: object) -> None:
        self.connection.request("POST", "/log", json.dumps({"step": step, **values}))  # planted
        self.connection.getresponse().read()  # planted


def batches(loader: DataLoader, count: int):
    done = 0
    while done < count:
        for batch in loader:
            yield done, batch
            done += 1
            if done == count:
                return


def train(options, tracker: ServerTracker) -> None:
    clock = Clock(options.times)
    accelerator = Accelerator(log_with=tracker, cpu=True)
    accelerator.init_trackers("regression")
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    inputs = torch.randn(8192, 256)
    loader = loader_of(options, 256, inputs, inputs[:, :8].sum(1, keepdim=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    every = 1 if options.fault else 1000
    for number, (x, y) in batches(loader, options.steps):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if number % every == 0:
            accelerator.log({"loss": loss.item()}, step=number)  # planted
        clock.tick()
    accelerator.end_training()


def main() -> None:
    options = arguments(__doc__, steps=150)
    server = Path(__file__).with_name("tracking_server.py")
    with subprocess.Popen([sys.executable, str(server)], stdout=subprocess.PIPE, text=True) as process:
        try:
            train(options, ServerTracker(int(process.stdout.readline())))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
