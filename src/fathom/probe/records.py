"""The probe's output file: JSON lines, appended in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fathom.atomic import atomic_write
from fathom.pristine import json, open, os
from fathom.probe.faults import fault
from fathom.probe.room import Room
from fathom.probe.threads import Lock

BATCH = 64
INTERVAL_NS = 500_000_000
KEEP_NS = 10_000_000_000
RETRIES, MOST_WAITING = 20, 20_000  # failed writes in a row, and records that wait for the next one

Record = Mapping[str, object]


class Records:
    """Appends records to `folder/proc-PID.jsonl`. The first line is what `describe()` returns.

    The file is open only while records are written: an open file would be among the program's, which may
    close it (as daemons do) and get its number for another.
    """

    def __init__(self, folder: str, describe: Callable[[], Record], room: Room | None = None) -> None:
        self.folder = folder
        self._describe = describe
        self._room = room or Room(folder)
        self._lock = Lock()
        self.forget()

    def forget(self) -> None:
        """Drop pending records and the file: after a fork both belong to the parent."""
        self._lock = Lock()  # another thread may have held it
        self._pending: list[Record] = []
        self.begun = self._lost = self._torn = False
        self._failures = 0
        self.flushed_ns = self._kept_ns = 0

    @property
    def opened(self) -> bool:
        """Whether this process has written anything."""
        return self.begun or bool(self._pending)

    def add(self, record: Record) -> None:
        """Queue a record. Appending to a list is atomic, so any thread may."""
        self._pending.append(record)

    def due(self, now_ns: int) -> bool:
        """Return whether pending records should be written now."""
        return len(self._pending) >= BATCH or now_ns - self.flushed_ns >= INTERVAL_NS

    def flush(self, now_ns: int = 0, last: bool = False) -> None:
        """Write all pending records. After an error they wait for the next call, unless this is the last."""
        self.flushed_ns = now_ns
        with self._lock:
            pending, self._pending = self._pending, []
            if not pending or self._lost:
                return
            try:
                self._write(pending)
                self._failures = 0
            except OSError as error:
                self._failures += 1
                self._pending = [*pending, *self._pending]
                if last or self._failures > RETRIES or len(self._pending) > MOST_WAITING:
                    self._pending, self._lost = [], True
                    fault("recording", error)

    def _write(self, pending: list[Record]) -> None:
        records = pending if self.begun else [self._describe(), *pending]
        data = "".join(_line(record) for record in records).encode()
        self._room.take(len(data))
        path = os.path.join(self.folder, f"proc-{os.getpid()}.jsonl")
        self._append(path, b"\n" + data if self._torn else data)
        self.begun = True

    def _append(self, path: str, data: bytes) -> None:
        """Write all of `data`, or leave the file as it was if possible."""
        before, torn = None, self._torn
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            try:
                before = os.fstat(file).st_size
                while data:
                    data = data[os.write(file, data) :]
            finally:
                os.close(file)  # this is where a network file system reports that it could not write
        except OSError:
            if before is not None:
                self._torn = True
                os.truncate(path, before)
                self._torn = torn
            raise
        self._torn = False

    def keep(self, name: str, unfinished: Callable[[], Record | None], now_ns: int) -> None:
        """Every KEEP_NS, replace the file `NAME-PID.json`, from which a crash's loss can be made up."""
        record = unfinished() if not self._lost and now_ns - self._kept_ns >= KEEP_NS else None
        if record is None:
            return
        self._kept_ns = now_ns
        path = os.path.join(self.folder, f"{name}-{os.getpid()}.json")
        try:
            with atomic_write(path) as part, open(part, "w", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            self._lost = True
            fault("recording", error)

    def close(self) -> None:
        """Write what is pending, for the last time."""
        self.flush(last=True)


def _line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), default=str) + "\n"
