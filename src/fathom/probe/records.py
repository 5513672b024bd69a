"""The probe's output file: JSON lines, appended in batches, opened with the first record."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

from fathom.probe.faults import fault

BATCH = 64
INTERVAL_NS = 500_000_000
KEEP_NS = 10_000_000_000

Record = dict[str, Any]


class Records:
    """Appends records to `folder/proc-PID.jsonl`. The first line is what `describe()` returns."""

    def __init__(self, folder: str, describe: Callable[[], Record]) -> None:
        self.folder = folder
        self._describe = describe
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Drop pending records and the file: after a fork both belong to the parent."""
        self._pending: list[Record] = []
        self._file: int | None = None
        self._lost = False
        self.flushed_ns = self._kept_ns = 0

    @property
    def opened(self) -> bool:
        """Whether this process has written anything."""
        return self._file is not None or bool(self._pending)

    def add(self, record: Record) -> None:
        """Queue a record. Appending to a list is atomic, so any thread may."""
        self._pending.append(record)

    def due(self, now_ns: int) -> bool:
        """Return whether pending records should be written now."""
        return len(self._pending) >= BATCH or now_ns - self.flushed_ns >= INTERVAL_NS

    def flush(self, now_ns: int = 0) -> None:
        """Write all pending records with one system call."""
        self.flushed_ns = now_ns
        with self._lock:
            pending, self._pending = self._pending, []
            if not pending or self._lost:
                return
            try:
                self._write(pending)
            except OSError as error:
                self._lost = True
                fault("recording", error)

    def _write(self, pending: list[Record]) -> None:
        if self._file is None:
            path = os.path.join(self.folder, f"proc-{os.getpid()}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            pending = [self._describe(), *pending]
        data = "".join(_line(record) for record in pending).encode()
        while data:
            data = data[os.write(self._file, data) :]

    def keep(self, name: str, unfinished: Callable[[], Record | None], now_ns: int) -> None:
        """Every KEEP_NS, replace the file `NAME-PID.json`, from which a crash's loss can be made up."""
        record = unfinished() if not self._lost and now_ns - self._kept_ns >= KEEP_NS else None
        if record is None:
            return
        self._kept_ns = now_ns
        path = os.path.join(self.folder, f"{name}-{os.getpid()}.json")
        try:
            file = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                out.write(_line(record))
            os.replace(path + ".part", path)
        except OSError as error:
            self._lost = True
            fault("recording", error)

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), default=str) + "\n"
