"""A client that times each request by the kernel's clock, from the write of the request to the last byte.

    python -m benchmarks.serving.client PORT FILE [--requests 24] [--rate 3] [--tokens 12] [--words 80]
    python -m benchmarks.serving.client PORT FILE --clients 4 --seconds 15

The second form is a closed loop: each of the clients sends its next request when the last one is answered.
Each request has a thread and a connection, opened before it is due. It ends when the kernel received the last
byte (SO_TIMESTAMPNS), so that the wait of its thread for a core does not count; `seen_ns` is when the
thread had read it. The process raises its priority if it may.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

WORDS = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split()
SO_TIMESTAMPNS, STAMP = 35, struct.Struct("qq")
PRIORITY = -10
AHEAD_S = 0.1  # of the request, the connection is opened
LONG_EVERY = 5  # prompts
WINDOW, SIP = 2048, 256  # bytes that a slow client has room for, and reads at a time


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
    seed: int = 1
    long: int = 0  # words of every LONG_EVERYth prompt, where it differs
    clients: int = 0  # of a closed loop, instead of a rate
    seconds: float = 0.0  # in which a closed loop sends requests


@dataclass
class Timed:
    """One request as the client saw it; times in ns."""

    start_ns: int
    end_ns: int
    seen_ns: int
    status: int


def drive(port: int, load: Load) -> list[Timed]:
    """Send the requests, and return their times in the order of sending."""
    timed: list[Timed] = []
    threads = _closed(port, load, timed) if load.clients else _open(port, load, timed)
    for thread in list(threads):
        thread.join()
    return sorted(timed, key=lambda request: request.start_ns)


def _open(port: int, load: Load, timed: list[Timed]) -> Iterator[threading.Thread]:
    """Yield a thread for each request; they are due at exponential intervals."""
    draw, due = random.Random(load.seed), time.monotonic() + 2 * AHEAD_S
    for number in range(load.requests):
        text = _prompt(draw, load, number)
        time.sleep(max(due - AHEAD_S - time.monotonic(), 0))
        thread = threading.Thread(target=_send, args=(port, load, text, due, timed))
        thread.start()
        yield thread
        due += draw.expovariate(load.rate)


def _closed(port: int, load: Load, timed: list[Timed]) -> Iterator[threading.Thread]:
    """Yield a thread for each client, which sends one request after the other."""
    until = time.monotonic() + load.seconds

    def client(draw: random.Random) -> None:
        number = 0
        while time.monotonic() < until:
            _send(port, load, _prompt(draw, load, number), time.monotonic(), timed)
            number += 1

    for place in range(load.clients):
        thread = threading.Thread(target=client, args=(random.Random(f"{load.seed} {place}"),))
        thread.start()
        yield thread


def _prompt(draw: random.Random, load: Load, number: int) -> str:
    words = load.long if load.long and number % LONG_EVERY == LONG_EVERY - 1 else load.words
    begin = draw.randrange(len(WORDS) - words)
    return " ".join([*WORDS[: load.shared], str(number), *WORDS[begin : begin + words]])


def _send(port: int, load: Load, text: str, due: float, timed: list[Timed]) -> None:
    message = _request(port, load, text)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if load.pause:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        connection.connect(("127.0.0.1", port))
        time.sleep(max(due - time.monotonic(), 0))
        start = time.time_ns()
        connection.sendall(message)
        timed.append(_read(connection, start, load.pause))


def _read(connection: socket.socket, start: int, pause: float) -> Timed:
    answer, end = b"", start
    while not _complete(answer):
        data, extra, _, _ = connection.recvmsg(SIP if pause else 2**16, socket.CMSG_SPACE(STAMP.size))
        if not data:
            break
        for _, _, stamp in extra:
            seconds, rest = STAMP.unpack(stamp)
            end = seconds * 1_000_000_000 + rest
        answer += data
        time.sleep(pause)
    return Timed(start, end, time.time_ns(), int(answer.split()[1]) if answer else 0)


def _complete(answer: bytes) -> bool:
    head, blank, body = answer.partition(b"\r\n\r\n")
    fields = head.lower()
    if not blank:
        return False
    if b"content-length: " in fields:
        return len(body) >= int(fields.split(b"content-length: ")[1].split()[0])
    return body.endswith(b"0\r\n\r\n")


def _request(port: int, load: Load, text: str) -> bytes:
    message = [{"role": "user", "content": text}]
    options = {"model": load.model, "max_tokens": load.tokens, "stream": True, "temperature": 0}
    body = json.dumps({"messages": message, **options}).encode()
    head = f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def main() -> None:
    """Drive the server that listens on a port, and write the times of the requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    for name, default in vars(Load()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    chosen = vars(parser.parse_args())
    port, file = chosen.pop("port"), chosen.pop("file")
    with contextlib.suppress(PermissionError):
        os.nice(PRIORITY)
    timed = drive(port, Load(**chosen))
    file.write_text(json.dumps([asdict(request) for request in timed]))


if __name__ == "__main__":
    main()
