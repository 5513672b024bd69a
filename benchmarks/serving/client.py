"""A client that times each request at its socket, from the write of the request to the last byte.

    python -m benchmarks.serving.client PORT FILE [--requests 24] [--rate 3] [--tokens 12] [--words 80]

It opens each connection before the request is due, so that its times hold only what the server can know.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TEXT = Path(__file__).parents[2] / "README.md"


@dataclass
class Load:
    """The requests to send: their rate, tokens, and the words of each prompt."""

    requests: int = 24
    rate: float = 3.0
    tokens: int = 12
    words: int = 80
    model: str = ""
    shared: int = 0  # words that all prompts begin with
    pause: float = 0.0  # seconds between reads: a slow client
    path: str = "/v1/chat/completions"


@dataclass
class Timed:
    """One request as the client saw it; times in ns."""

    start_ns: int
    end_ns: int
    status: int


async def drive(port: int, load: Load) -> list[Timed]:
    """Send the requests at exponential intervals, and return their times in the order of sending."""
    draw, words = random.Random(1), TEXT.read_text(encoding="utf-8").split()
    tasks = []
    for number in range(load.requests):
        begin = draw.randrange(len(words) - load.words)
        text = " ".join([*words[: load.shared], str(number), *words[begin : begin + load.words]])
        tasks.append(asyncio.create_task(_send(port, load, text)))
        await asyncio.sleep(draw.expovariate(load.rate))
    return sorted(await asyncio.gather(*tasks), key=lambda timed: timed.start_ns)


async def _send(port: int, load: Load, text: str) -> Timed:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10 if load.pause else 2**16)
    message, start = _request(port, load, text), time.time_ns()
    writer.write(message)
    status = int((await reader.readline()).split()[1])
    while await reader.read(2**16):
        if load.pause:
            await asyncio.sleep(load.pause)
    end = time.time_ns()
    writer.close()
    return Timed(start, end, status)


def _request(port: int, load: Load, text: str) -> bytes:
    message = [{"role": "user", "content": text}]
    options = {"model": load.model, "max_tokens": load.tokens, "stream": True, "temperature": 0}
    body = json.dumps({"messages": message, **options}).encode()
    head = f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def main() -> None:
    """Drive the server that listens on a port, and write the times of the requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    for name, default in vars(Load()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    chosen = vars(parser.parse_args())
    port, file = chosen.pop("port"), chosen.pop("file")
    timed = asyncio.run(drive(port, Load(**chosen)))
    file.write_text(json.dumps([asdict(request) for request in timed]))


if __name__ == "__main__":
    main()
