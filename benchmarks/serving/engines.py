"""Start and stop servers under `fathom run`, and load them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.serving.client import Load

PATIENCE = 600.0  # seconds until a server answers
SHOWN = 4000  # characters of the output of one that does not: Fathom's report comes after its traceback
FATHOM = (sys.executable, "-m", "fathom")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
VLLM_SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GB of a cache on a CPU


def transformers_serve(python: str, model: Path, port: int, *options: str) -> list[str]:
    """Return the command of `transformers serve` with continuous batching; `python` has transformers."""
    serve = [python, "-m", "benchmarks.serving.faulty", "serve", str(model), "--continuous-batching"]
    where = ["--device", "cpu", "--dtype", "float32", "--port", str(port)]
    small = [] if "--cb-num-blocks" in options else ["--cb-num-blocks", "256"]
    budget = [] if "--cb-max-batch-tokens" in options else ["--cb-max-batch-tokens", "512"]
    return [*serve, *where, *small, *budget, *options]


def llama_server(python: str, model: Path, port: int, *options: str) -> list[str]:
    """Return the command of llama-cpp-python's server; `model` is a GGUF file."""
    where = ["--model", str(model), "--port", str(port), "--n_ctx", "2048", "--n_threads", "1"]
    return [python, "-m", "llama_cpp.server", *where, *options]


def vllm_serve(python: str, model: Path, port: int, *options: str) -> list[str]:
    """Return the command of `vllm serve`; `python` has a vLLM that runs on this machine.

    It checks that a tenth of the memory is free, and takes the cache of `VLLM_SMALL`.
    """
    where = ["--port", str(port), "--enforce-eager", "--dtype", "bfloat16", "--gpu-memory-utilization", "0.1"]
    length = [] if "--max-model-len" in options else ["--max-model-len", "2048"]
    return [python, "-m", "benchmarks.serving.faulty", "vllm", "serve", str(model), *where, *length, *options]


def sglang_server(python: str, model: Path, port: int, *options: str) -> list[str]:
    """Return the command of SGLang's server on a CPU; `python` has what `sglang_cpu.py` needs."""
    where = ["--model-path", str(model), "--port", str(port), "--max-total-tokens", "4096"]
    return [python, "-m", "benchmarks.serving.sglang_cpu", *where, *options]


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; it has answered before the block begins."""
    with log.open("wb") as file:
        environment = {**os.environ, **ONE_THREAD, **VLLM_SMALL, **more}
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            _await(port, process, log)
            yield process
        finally:
            _end(process)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-SHOWN:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the server, then terminate it: transformers' engine thread survives an interrupt."""
    for number, seconds in ((signal.SIGINT, 5), (signal.SIGTERM, 5), (signal.SIGKILL, 20)):
        for child in psutil.Process(process.pid).children() if process.poll() is None else ():
            child.send_signal(number)
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()


def record(
    command: Sequence[str], port: int, folder: Path, load: Load, *options: str, **more: str
) -> list[dict[str, Any]]:
    """Record a server under load into `folder/serve.fathom`; return the requests as the client saw them.

    Two short requests before the load start the engine. `more` are variables of the server's environment.
    """
    run = [*FATHOM, "run", *options, "-o", str(folder / "serve.fathom"), "--", *command]
    with running(run, port, folder / "server.log", **more):
        drive(port, folder, Load(requests=2, rate=2.0, tokens=4, words=20, model=load.model, path=load.path))
        return drive(port, folder, load)


def drive(port: int, folder: Path, load: Load) -> list[dict[str, Any]]:
    """Run the client in its own process."""
    file = folder / "client.json"
    options = [text for name, value in vars(load).items() for text in (f"--{name}", str(value))]
    client = [sys.executable, "-m", "benchmarks.serving.client", str(port), str(file), *options]
    subprocess.run(client, check=True)
    timed: list[dict[str, Any]] = json.loads(file.read_text())
    return timed
