"""Run Python programs in processes forked from one that has imported torch or Fathom, which takes 1 to 2 s.

The program sees a new process: its environment, folder, arguments, standard streams and `sys.path` are those
that a new interpreter would have, `sitecustomize` is imported again, and torch is not in `sys.modules` until
the program imports it (`tests/support/warm_server.py`).
"""

from __future__ import annotations

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
SERVER = Path(__file__).with_name("warm_server.py")
STACKS = signal.SIGRTMAX  # a program prints its stacks
TORCH, DYNAMO = "torch", "torch._dynamo"
COMPILING = ("sympy", TORCH)  # Dynamo imports sympy
FATHOM = ("polars", "psutil", "rich.console", "typer._adapters", "fathom.cli.main", "fathom.gauges.catalogue",
          "fathom.recorder.finishing", "fathom.recorder.recording", "fathom.sounding.raw.importer",
          "fathom.machine.checks", "fathom.diagnosis.examine", "fathom.report.screen")  # fmt: skip
_servers: dict[tuple[int, tuple[str, ...]], _Server] = {}  # of this process, by rank and imports


def run(
    words: Sequence[object],
    environment: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float = 120,
    imported: tuple[str, ...] = (TORCH, DYNAMO),
    rank: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` to its end, where WORDS begin with a file or `-m`. Raises TimeoutError.

    Optimizers import Dynamo. A program that compiles has to import it itself, because Dynamo's modules keep
    functions of torch as they are at that moment. Programs of different `rank` may run at once.
    """
    server = _servers.get((rank, imported)) or _servers.setdefault((rank, imported), _Server(rank, imported))
    argv = [str(word) for word in words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        request = {"argv": argv, "environment": dict(environment), "cwd": str(cwd or Path.cwd())}
        try:
            status = server.status(request, (out.fileno(), err.fileno()), timeout)
        except TimeoutError as late:  # its last words are the stacks of its threads
            raise TimeoutError(f"{late}: {os.pread(err.fileno(), 1 << 30, 0).decode()}") from late
        said, complained = (os.pread(file.fileno(), 1 << 30, 0).decode() for file in (out, err))
    # Frozen objects are not freed at the end; Triton's bindings print that last.
    complained = complained.partition("nanobind: leaked")[0]
    return subprocess.CompletedProcess([sys.executable, *argv], status, said, complained)


def run_ranks(
    words: Sequence[object], environment: Mapping[str, str], ranks: int, timeout: float = 120
) -> list[subprocess.CompletedProcess[str]]:
    """Run `python WORDS` on all ranks of a job at once, like torchrun: if one fails, the others are ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(ranks))
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **sizes}

    def of(rank: int) -> subprocess.CompletedProcess[str]:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        return run(
            words, {**environment, **job, **own}, timeout=timeout, rank=1 + rank
        )  # no server of others

    with ThreadPoolExecutor(ranks) as pool:
        each = [pool.submit(of, rank) for rank in range(ranks)]
        failed = next((job for job in as_completed(each) if job.exception() or job.result().returncode), None)
        if failed is not None:  # the first one; the status of those that it takes along says nothing
            for server in [server for (rank, _), server in _servers.items() if 0 < rank <= ranks]:
                server.end()
            wait(each)
            return [failed.result()]
    return [job.result() for job in each]


class _Server:
    """The process that programs are forked from."""

    def __init__(self, rank: int, imported: tuple[str, ...]) -> None:
        self.key = rank, imported
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FATHOM"))}
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno()), *imported],
                env={**clean, "PYTHONPATH": str(SOURCE)},  # not the installed one, in another worktree
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.end)

    def status(self, request: dict[str, object], streams: tuple[int, int], timeout: float) -> int:
        """Run a program to its end. Returns its exit status, or the negative number of a signal."""
        body = json.dumps(request).encode()
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        self.socket.sendmsg([len(body).to_bytes(8, "little")], files)
        self.socket.sendall(body)
        self.socket.settimeout(timeout)
        try:
            said = self.socket.recv(8)
            return int.from_bytes(said, "little", signed=True) if said else -signal.SIGKILL
        except TimeoutError:
            os.killpg(self.process.pid, STACKS)
            time.sleep(1)
            self.end()
            raise

    def end(self) -> None:
        """End it, and a program that it still runs."""
        if _servers.pop(self.key, None):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.socket.close()
