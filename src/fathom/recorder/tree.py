"""The processes of a program: itself and its descendants."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from fathom.probe import ELASTIC

PATIENCE_S = 1.5  # for processes to end after each request


class ProcessTree:
    """A program and its descendants; without psutil, only the program itself."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._known: dict[int, Any] = {}
        self.refresh()

    def refresh(self) -> None:
        """Find new descendants. Known descendants stay known when their parent ends."""
        for process in _family(self.root):
            self._known.setdefault(process.pid, process)
        self._known = {pid: p for pid, p in self._known.items() if p.is_running()}

    def processes(self) -> Sequence[Any]:
        """Return the psutil processes alive at the last refresh."""
        return list(self._known.values())

    def send(self, number: int, but: Collection[int] = ()) -> None:
        """Send a signal to the program and its descendants, `but` some."""
        self.refresh()
        if not self._known:
            with suppress(ProcessLookupError):
                os.kill(self.root, number)
        for process in self.processes():
            if process.pid not in but:
                _quietly(process.send_signal, number)

    def agents(self) -> set[int]:
        """Return the processes that started workers of torchrun, by the workers' environment."""
        self.refresh()
        environments = {p.pid: _quietly(p.environ) or {} for p in self.processes()}
        workers = [p for p in self.processes() if ELASTIC in environments[p.pid]]
        parents = {parent for p in workers if (parent := _quietly(p.ppid)) in environments}
        return {pid for pid in parents if ELASTIC not in environments[pid]}

    def end_rest(self) -> None:
        """Terminate, then kill, everything still alive except the program itself."""
        rest = [p for p in self.processes() if p.pid != self.root]
        if not rest:
            return
        import psutil

        for ask in ("terminate", "kill"):
            _, rest = psutil.wait_procs(rest, timeout=PATIENCE_S)
            for process in rest:
                _quietly(getattr(process, ask))

    def resident_bytes(self) -> int | None:
        """Return the total resident memory in bytes; shared pages count once per process."""
        sizes = [_quietly(p.memory_info) for p in self.processes()]
        known = [size.rss for size in sizes if size]
        return sum(known) if known else None

    def processor_seconds(self) -> float | None:
        """Return the processor time that the processes have used so far."""
        times = [_quietly(p.cpu_times) for p in self.processes()]
        known = [time.user + time.system for time in times if time]
        return sum(known) if known else None


def _family(root: int) -> list[Any]:
    try:
        import psutil
    except ImportError:
        return []
    try:
        program = psutil.Process(root)
        return [program, *program.children(recursive=True)]
    except psutil.Error:
        return []


def _quietly(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception:  # it ended in the meantime, or belongs to another user
        return None
