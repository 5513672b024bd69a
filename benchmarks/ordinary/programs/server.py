"""Serve an image classifier with FastAPI; a client in another process sends pictures."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import uvicorn
from common import Clock, arguments
from fastapi import FastAPI
from pydantic import BaseModel
from torch import Tensor, nn

SIDE = 96
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Picture(BaseModel):
    pixels: str  # rows of RGB bytes, in hexadecimal


def normalised_by_hand(data: bytes) -> Tensor:
    """Channels first, each with mean 0 and deviation 1."""
    planes = [[], [], []]
    for place, value in enumerate(data):  # planted
        channel = place % 3  # planted
        planes[channel].append((value / 255 - MEAN[channel]) / DEVIATION[channel])  # planted
    return torch.tensor(planes).reshape(3, SIDE, SIDE)  # planted


def normalised_at_once(data: bytes) -> Tensor:
    pixels = np.frombuffer(data, np.uint8).reshape(SIDE, SIDE, 3).astype(np.float32) / 255
    return torch.from_numpy((pixels - np.float32(MEAN)) / np.float32(DEVIATION)).permute(2, 0, 1)


class Classifier(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in pairwise(sizes)
            )
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images).mean((2, 3)))


def application(fault: bool, clock: Clock) -> FastAPI:
    app, model = FastAPI(), Classifier().eval()

    @app.post("/predict")
    async def predict(picture: Picture) -> dict:
        data = bytes.fromhex(picture.pixels)
        image = normalised_by_hand(data) if fault else normalised_at_once(data)  # planted
        with torch.inference_mode():
            scores = model(image[None]).softmax(-1)[0]
        clock.tick()
        return {"label": int(scores.argmax()), "score": float(scores.max())}

    return app


def main() -> None:
    options = arguments(__doc__, steps=200)
    app = application(options.fault, Clock(options.times))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    client = Path(__file__).with_name("client.py")

    async def start_client() -> None:
        port = server.servers[0].sockets[0].getsockname()[1]
        app.state.client = subprocess.Popen([sys.executable, str(client), str(port), str(options.steps)])

    @app.post("/done")
    async def done() -> None:
        server.should_exit = True

    original = server.startup

    async def startup(sockets: list | None = None) -> None:
        await original(sockets)
        await start_client()

    server.startup = startup
    server.run()
    app.state.client.wait()


if __name__ == "__main__":
    main()
