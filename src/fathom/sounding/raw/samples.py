"""Build the `samples` table from the bursts of the phase `counters`, each a JSON record and a binary file."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fathom.errors import FathomError
from fathom.regular import RECORDS, read_regular
from fathom.sounding.manifest import Facts, Problem
from fathom.sounding.raw import ticks
from fathom.sounding.raw.folder import Process, Raw, Record
from fathom.sounding.schema import empty

STAMP, VALUE = np.dtype("<u8"), np.dtype("<f4")
LARGEST_STAMP = 1 << 62
MOST_DROPPED = 0.1
TOO_LONG = 2
KEPT = ("burst", "device", "interval_ns", "trigger", "populated", "completed", "overflow", "decode_ns")


class LostError(FathomError):
    """A burst of samples cannot be used; the message says why."""


@dataclass
class CounterSamples:
    """The `samples` table, the names of the counters in each group, facts about each burst, and problems."""

    table: pl.DataFrame
    groups: list[list[str]] = field(default_factory=list)
    bursts: list[Record] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def facts(self) -> Facts:
        """Facts for the manifest; empty if nothing was sampled."""
        return {"counter_groups": self.groups, "sampling": self.bursts} if self.bursts else {}


@dataclass(frozen=True)
class _Burst:
    record: Record
    device: int
    number: int
    names: list[str]
    stamped: ticks.Stamped
    values: np.ndarray  # [samples, counters]
    dropped: int


def samples(raw: Raw, process: Process, rank: int, settled: int = 0) -> CounterSamples:
    """Return the samples of one process, from step `settled` on; unusable bursts become problems."""
    result = CounterSamples(empty("samples"))
    bursts: list[_Burst] = []
    for record in process.of("samples"):
        try:
            if record["k0"] >= settled:
                bursts.append(_read(raw, record))
        except LostError as error:
            result.problems.append(Problem("samples-lost", str(error), rank=rank, spoils=["samples"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            text = "A record of a burst of samples is damaged, so the burst was left out."
            result.problems.append(Problem("samples-lost", text, rank=rank, spoils=["samples"]))
    stamped = [burst.stamped for burst in bursts]
    speed = ticks.rate(stamped)
    fitting = [burst for burst in stamped if speed is not None and burst.holds(speed)]
    frames = [frame for burst in bursts if (frame := _frame(burst, fitting, speed, result, rank)) is not None]
    if frames:
        result.table = pl.concat(frames)
    return result


def _read(raw: Raw, record: Record) -> _Burst:
    names, count = [str(name) for name in record["names"]], int(record["completed"])
    if not names:
        raise ValueError("no names")
    if not count:
        why = "the hardware buffer overflowed" if record.get("overflow") else "no sample of it was complete"
        raise LostError(f"Burst {record['burst']} of counters is empty: {why}.")
    data = _bytes(raw, record, count * (2 * STAMP.itemsize + len(names) * VALUE.itemsize))
    starts = np.frombuffer(data, STAMP, count)
    ends = np.frombuffer(data, STAMP, count, count * STAMP.itemsize)
    values = np.frombuffer(data, VALUE, offset=2 * count * STAMP.itemsize).reshape(count, len(names))
    kept = (starts > 0) & (ends > starts) & (ends < LARGEST_STAMP)
    lengths = ends.astype(np.int64) - starts.astype(np.int64)
    kept[0] &= lengths[0] <= TOO_LONG * np.median(lengths)  # longer: the driver began it before sampling
    dropped = count - int(kept.sum())
    if (
        dropped > max(1, MOST_DROPPED * count)
        or dropped == count
        or (np.diff(starts[kept].astype(np.int64)) < 0).any()
    ):
        raise LostError(f"The times of {record['file']} are damaged, so its burst was left out.")
    stamped = _stamped(record, starts[kept], ends[kept])
    return _Burst(record, int(record["device"]), int(record["burst"]), names, stamped, values[kept], dropped)


def _stamped(record: Record, starts: np.ndarray, ends: np.ndarray) -> ticks.Stamped:
    started, stopped = (tuple(map(int, record[name])) for name in ("start_ns", "stop_ns"))
    if len(started) != 2 or len(stopped) != 2:
        raise ValueError("an anchor is two times")
    by_time = record.get("trigger", "time") == "time"
    signed = (starts.astype(np.int64), ends.astype(np.int64))
    return ticks.Stamped(*signed, started, stopped, int(record["interval_ns"]) if by_time else None)


def _bytes(raw: Raw, record: Record, size: int) -> bytes:
    file = str(record["file"])
    path = raw.path / file
    if path.parent != raw.path or not path.is_file():
        raise LostError(f"The samples {file} are missing, so their burst was left out.")
    if path.stat().st_size != size:
        raise LostError(f"{file} is truncated, so its burst of samples was left out.")
    data = read_regular(path, RECORDS)
    if zlib.crc32(data) != record.get("crc"):
        raise LostError(f"{file} is damaged, so its burst of samples was left out.")
    return data


def _frame(
    burst: _Burst, fitting: list[ticks.Stamped], speed: float | None, result: CounterSamples, rank: int
) -> pl.DataFrame | None:
    stamped = burst.stamped
    if not stamped.in_nanoseconds and (speed is None or not stamped.holds(speed)):
        text = f"The clock of {burst.record['file']} is unknown, so its burst of samples was left out."
        result.problems.append(Problem("samples-lost", text, rank=rank, spoils=["samples"]))
        return None
    began = ticks.start_of(stamped, fitting, speed or 1.0)
    starts, ends = ticks.nanoseconds(stamped, speed or 1.0, began.at)
    group = _group(result.groups, burst.names)
    result.bursts.append(_facts(burst, speed, began.unsure_ns) | {"group": group})
    width = pl.Array(pl.Float32, len(burst.names))
    values = pl.Series("values", burst.values.astype(np.float32), dtype=width).cast(pl.List(pl.Float32))
    labels = {"device": burst.device, "group": group, "burst": burst.number}
    frame = pl.DataFrame({"start_ns": starts, "end_ns": ends, "values": values})
    constants = {name: pl.lit(value, dtype=pl.Int32) for name, value in labels.items()}
    return frame.with_columns(phase=pl.lit("counters"), **constants).select(empty("samples").columns)


def _facts(burst: _Burst, speed: float | None, unsure_ns: int) -> Record:
    """Return facts about a burst for the manifest; times are in ns."""
    stamped, in_ns = burst.stamped, burst.stamped.in_nanoseconds
    unsure = unsure_ns + burst.dropped * (stamped.interval_ns or 0)
    return {name: burst.record.get(name) for name in KEPT} | {
        "dropped": burst.dropped,
        "clock": "ns" if in_ns else "ticks",
        "ticks_per_ns": None if in_ns else speed,
        "clock_error_ns": 0 if in_ns else unsure,
        "start_ns": list(stamped.started),
        "stop_ns": list(stamped.stopped),
    }


def _group(groups: list[list[str]], names: list[str]) -> int:
    """Return the index of these names in `groups`; append them if they are new."""
    if names not in groups:
        groups.append(names)
    return groups.index(names)
