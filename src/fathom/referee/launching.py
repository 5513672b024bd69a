"""Two ways to start a process: a new interpreter, or a fork of one that has imported the heavy libraries."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol

from fathom.errors import BadInputError
from fathom.referee.protocol import Spec

END_S = 5.0
MODULE = "fathom.referee.child"


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Context manager: a process that leads a group, killed at the end with all that it started."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Started(Protocol):
    """A started process, which leads its own process group."""

    pid: int

    def ended(self) -> str:
        """Wait for the process to end, and return in one clause how it ended."""
        ...

    def end(self) -> None:
        """Kill the process and everything that it started, and wait for its end."""
        ...


class Launcher(Protocol):
    """Anything that starts processes to serve one side."""

    def start(self, spec: Spec, ask: int, answer: int, errors: IO[str]) -> Started:
        """Start a process; `ask` and `answer` are its ends of the pipes, `errors` gets its standard error."""
        ...


class Spawned:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid

    def ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        status = self._process.poll()
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return f"its process ended with {how}"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.ended()


class Spawn:
    """Starts a new interpreter each time, so that processes share nothing, not even the layout of memory."""

    def start(self, spec: Spec, ask: int, answer: int, errors: IO[str]) -> Started:
        command = [sys.executable, "-m", MODULE, json.dumps(spec), str(ask), str(answer)]
        return Spawned(_open(command, (ask, answer), errors))

    def __enter__(self) -> Spawn:
        return self

    def __exit__(self, *_: object) -> None: ...


class Forked:
    """A grandchild of this process, which its own parent reaps."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle: int | None = None
        with suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid)  # because the pid may be reused after the process has ended

    def ended(self) -> str:
        if self._handle is not None:
            select.select([self._handle], [], [], END_S)
        return "its process ended"

    def end(self) -> None:
        if self._handle is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, 0)
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)  # it did not lead a group yet
        self.ended()
        os.close(self._handle)
        self._handle = None


class Fork:
    """Forks a process that has only imported `modules`, which saves the time of the imports.

    The forks share that process's memory layout and hash seed, so the confidence interval does not cover
    the effect of these.
    Several threads may start forks.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules, self._lock = modules, threading.Lock()

    def __enter__(self) -> Fork:
        self._socket, there = socket.socketpair()
        with there:
            command = [sys.executable, "-m", f"{MODULE}.zygote", str(there.fileno()), *self._modules]
            self._process = _open(command, (there.fileno(),), None)
        return self

    def start(self, spec: Spec, ask: int, answer: int, errors: IO[str]) -> Started:
        content = json.dumps(spec).encode()
        with self._lock:
            try:
                head = len(content).to_bytes(4, "big")
                socket.send_fds(self._socket, [head], [ask, answer, errors.fileno()])
                self._socket.sendall(content)
                pid = self._socket.recv(4)
            except OSError:
                pid = b""
        if len(pid) < 4:
            raise BadInputError(
                f"The process that imports {', '.join(self._modules)} ended; use --fresh spawn."
            )
        return Forked(int.from_bytes(pid, "big"))

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _open(
    command: list[str], descriptors: tuple[int, ...], errors: IO[str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=descriptors,
        start_new_session=True,
        env=os.environ | {"PYTHONSAFEPATH": "1"},  # a torch.py in the working directory is not imported
    )
