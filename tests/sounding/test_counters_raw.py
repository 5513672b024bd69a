"""Samples on their way into a sounding: clocks are known from the data, damaged files are kept out."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.probe.counters import Chunk
from fathom.probe.counters.sampler import SampleBuffer
from fathom.sounding import import_raw
from fathom.sounding.raw import ticks
from tests.sounding.test_raw_importer import MS, T0, clock, marks, process, write

NAMES = ["sm__a", "sm__b"]
INTERVAL = 20_000


class Truth:
    """When samples really were, and how a clock of some rate stamped them."""

    def __init__(self, rate: float = 1.0, origin: int = 0, jitter_ns: int = 40_000) -> None:
        self.rate, self.origin, self.jitter_ns = rate, origin, jitter_ns

    def burst(self, begun: int, samples: int, late: int = 0) -> tuple[ticks.Stamped, np.ndarray]:
        """A burst whose first sample began `late` after the host's start call; and its true starts in ns."""
        real = begun + late + INTERVAL * np.arange(samples)
        starts, ends = self._stamped(real), self._stamped(real + INTERVAL)
        end = int(real[-1]) + INTERVAL
        around = (begun - 2 * self.jitter_ns, begun)
        return ticks.Stamped(starts, ends, around, (end, end + 2 * self.jitter_ns), INTERVAL), real

    def _stamped(self, real: np.ndarray) -> np.ndarray:
        if self.rate == 1.0:
            return real - self.origin
        return np.rint((real - self.origin) * self.rate).astype(np.int64)


@given(
    st.floats(0.5, 5.0),
    st.lists(st.tuples(st.integers(500, 5000), st.integers(-30_000, 30_000)), min_size=2, max_size=6),
    st.integers(1, 1000),
)
def test_ticks_become_the_times_that_they_were(
    rate: float, shapes: list[tuple[int, int]], uptime_s: int
) -> None:
    truth = Truth(rate, T0 - uptime_s * 10**9)
    made = [truth.burst(T0 + n * 3_000 * MS, count, late) for n, (count, late) in enumerate(shapes)]
    result = ticks.rate([stamped for stamped, _ in made])
    assert result == pytest.approx(rate, rel=3e-5)
    for (stamped, real), (count, late) in zip(made, shapes, strict=True):
        assert not stamped.in_nanoseconds and stamped.holds(result)
        starts, ends = ticks.nanoseconds(stamped, result)
        drift = 3e-5 * count * INTERVAL + 2
        assert np.abs(starts + late - real).max() <= drift
        assert np.abs(ends - starts - INTERVAL).max() <= 3


def test_nanoseconds_since_the_epoch_stay_as_they_are() -> None:
    stamped, real = Truth().burst(T0, 1000)
    assert stamped.in_nanoseconds and ticks.rate([stamped]) is None
    assert (ticks.nanoseconds(stamped, 2.0)[0] == real).all()


def test_one_burst_alone_is_told_by_its_interval_and_checked_by_its_anchors() -> None:
    stamped, _ = Truth(2.1, T0 - 10**12).burst(T0, 1000)
    assert ticks.rate([stamped]) == pytest.approx(2.1, rel=1e-4)
    lost = ticks.Stamped(stamped.starts[:300], stamped.ends[:300], stamped.started, stamped.stopped, INTERVAL)
    assert ticks.rate([lost]) == pytest.approx(2.1, rel=1e-4)  # the buffer was full before the end
    cycles = ticks.Stamped(stamped.starts, stamped.ends, stamped.started, stamped.stopped, None)
    assert ticks.rate([cycles]) == pytest.approx(2.1, rel=0.01)


def test_an_interval_that_was_not_kept_gives_way_to_the_anchors() -> None:
    stamped, _ = Truth(2.1, T0 - 10**12).burst(T0, 1000)
    longer = ticks.Stamped(
        stamped.starts, stamped.ends, stamped.started, stamped.stopped, INTERVAL * 11 // 10
    )
    assert ticks.rate([longer]) == pytest.approx(2.1, rel=0.01)


def test_distant_bursts_give_the_rate_though_the_interval_was_not_kept() -> None:
    made = [Truth(2.1, T0 - 10**12).burst(T0 + n * 2_000 * MS, 1000)[0] for n in range(3)]
    shorter = [ticks.Stamped(b.starts, b.ends, b.started, b.stopped, INTERVAL * 9 // 10) for b in made]
    assert ticks.rate(shorter) == pytest.approx(2.1, rel=1e-4)


def test_stamps_that_contradict_their_anchors_tell_nothing() -> None:
    stamped, _ = Truth(2.1, T0 - 10**12).burst(T0, 1000)
    for stopped in (stamped.started, (T0 + MS, T0 + MS)):
        assert (
            ticks.rate([ticks.Stamped(stamped.starts, stamped.ends, stamped.started, stopped, INTERVAL)])
            is None
        )


# files and records


def record(burst: int, data: bytes, count: int, begun: int, **more: Any) -> dict[str, Any]:
    about = {"t": "samples", "burst": burst, "device": 0, "group": 0, "names": NAMES, "interval_ns": INTERVAL}
    end = begun + count * INTERVAL
    times = {"start_ns": [begun - 1000, begun + 1000], "stop_ns": [end, end + 1000], "k0": 0, "k1": 4}
    counts = {"populated": count, "completed": count, "overflow": False, "decode_ns": 5}
    return about | times | counts | {"file": f"samples-7-{burst}.bin", "crc": zlib.crc32(data)} | more


def burst_file(starts: list[int], ends: list[int], rows: list[list[float]]) -> bytes:
    flat = [item for row in rows for item in row]
    return struct.pack(f"<{len(starts)}Q{len(ends)}Q{len(flat)}f", *starts, *ends, *flat)


def plain(begun: int, count: int = 50) -> bytes:
    starts = [begun + INTERVAL * n for n in range(count)]
    return burst_file(starts, [s + INTERVAL for s in starts], [[n, -n / 2] for n in range(count)])


def imported(folder: Path, bursts: dict[int, tuple[dict[str, Any], bytes | None]], *more: Any) -> Any:
    records = [
        process(),
        clock(),
        marks(0, 6, "counters", 3),
        *more,
        *(about for about, _ in bursts.values()),
    ]
    write(folder, {7: records})
    for number, (_, data) in bursts.items():
        if data is not None:
            (folder / "raw" / f"samples-7-{number}.bin").write_bytes(data)
    return import_raw(folder)


def test_a_burst_becomes_rows_with_its_group(tmp_path: Path) -> None:
    other = {"names": ["sm__a"], "group": 1}
    starts = [T0 + 9 * MS + INTERVAL * n for n in range(3)]
    second = burst_file(starts, [s + INTERVAL for s in starts], [[0.5]] * 3)
    store = imported(
        tmp_path,
        {
            3: (record(3, plain(T0), 50, T0), plain(T0)),
            5: (record(5, second, 3, T0 + 9 * MS, **other), second),
        },
    )
    rows, [rank] = store.table("samples").collect(), store.manifest.ranks
    assert store.manifest.problems == [] and rank.facts["counter_groups"] == [NAMES, ["sm__a"]]
    assert rows["values"].to_list() == [*([float(n), -n / 2] for n in range(50)), *[[0.5]] * 3]
    assert rows["start_ns"].to_list() == [*(T0 + INTERVAL * n for n in range(50)), *starts]
    assert rows["burst"].to_list() == [3] * 50 + [5] * 3 and rows["group"].to_list() == [0] * 50 + [1] * 3
    assert rows["phase"].unique().to_list() == ["counters"]
    [first, _] = rank.facts["sampling"]
    assert (first["burst"], first["group"], first["interval_ns"], first["clock"]) == (3, 0, INTERVAL, "ns")
    json.dumps(rank.facts)


def test_a_first_stamp_of_zero_is_left_out_and_counted(tmp_path: Path) -> None:
    data = bytearray(plain(T0))
    data[:8] = bytes(8)
    store = imported(tmp_path, {3: (record(3, bytes(data), 50, T0), bytes(data))})
    assert len(store.table("samples").collect()) == 49 and store.manifest.problems == []
    assert store.manifest.ranks[0].facts["sampling"][0]["dropped"] == 1


def damaged() -> dict[str, tuple[dict[str, Any], bytes | None, str]]:
    good = plain(T0)
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    back = burst_file([T0 + 9, T0 + 5], [T0 + 19, T0 + 15], [[1, 2], [3, 4]])
    mad = burst_file([2**63 + n for n in range(50)], [2**63 + n + 1 for n in range(50)], [[1, 2]] * 50)
    distant = [5 + 10 * INTERVAL * n for n in range(50)]
    far = burst_file(distant, [start + INTERVAL for start in distant], [[1, 2]] * 50)
    return {
        "missing": (record(3, good, 50, T0), None, "missing"),
        "truncated": (record(3, good, 50, T0), good[:-3], "truncated"),
        "too long": (record(3, good, 50, T0), good + b"x", "truncated"),
        "empty": (record(3, good, 50, T0), b"", "truncated"),
        "flipped": (record(3, good, 50, T0), flipped, "damaged"),
        "huge": (record(3, good, 50, T0, completed=10**15), good, "truncated"),
        "negative": (record(3, good, 50, T0, completed=-1), good, "truncated"),
        "none complete": (record(3, b"", 0, T0, populated=9), b"", "complete"),
        "overflowed": (record(3, b"", 0, T0, overflow=True), b"", "overflowed"),
        "elsewhere": (record(3, good, 50, T0, file="../launch.json"), good, "missing"),
        "rooted": (record(3, good, 50, T0, file="/etc/hostname"), good, "missing"),
        "backwards": (record(3, back, 2, T0), back, "times"),
        "mad times": (record(3, mad, 50, T0), mad, "times"),
        "another clock": (record(3, far, 50, T0), far, "clock"),
        "no names": (record(3, good, 50, T0, names=None), good, "record"),
        "no anchors": (record(3, good, 50, T0, start_ns=[1]), good, "record"),
        "odd anchors": (record(3, good, 50, T0, stop_ns="soon"), good, "record"),
        "no step": ({k: v for k, v in record(3, good, 50, T0).items() if k != "k0"}, good, "record"),
        "odd device": (record(3, good, 50, T0, device="x"), good, "record"),
    }


@pytest.mark.parametrize("what", damaged())
def test_what_is_damaged_is_named_and_kept_out(tmp_path: Path, what: str) -> None:
    about, data, words = damaged()[what]
    good = plain(T0 + 20 * MS)
    store = imported(tmp_path, {3: (about, data), 4: (record(4, good, 50, T0 + 20 * MS), good)})
    assert store.table("samples").collect()["burst"].unique().to_list() == [4]
    [problem] = store.manifest.problems
    assert problem.what == "samples-lost" and problem.spoils == ["samples"] and words in problem.text
    assert [fact["burst"] for fact in store.manifest.ranks[0].facts["sampling"]] == [4]


def test_samples_before_the_program_settled_are_no_samples(tmp_path: Path) -> None:
    store = imported(tmp_path, {3: (record(3, plain(T0), 50, T0), plain(T0))}, {"t": "resettled", "k": 2})
    assert store.table("samples").collect().is_empty() and store.manifest.problems == []
    assert "counter_groups" not in store.manifest.ranks[0].facts


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "kept"),
    [(8.0, 8.1, True), (8.0, 7.2, True), (14.0, 8.0, False), (None, 8.0, False), (8.0, None, False)],
)
def test_a_host_that_launches_faster_is_no_step_that_settled(
    tmp_path: Path, before_ms: float | None, after_ms: float | None, kept: bool
) -> None:
    timed = [
        {"t": "device", "burst": burst, "marks": [[k + n, round(n * ms * MS)] for n in range(3)]}
        for burst, k, ms in ((1, 0, before_ms), (5, 3, after_ms))
        if ms is not None
    ]
    burst = {3: (record(3, plain(T0), 50, T0), plain(T0))}
    store = imported(tmp_path, burst, {"t": "resettled", "k": 3}, *timed)
    assert (store.table("samples").collect().height > 0) == kept
    settling = store.table("steps").collect().filter(phase="settle")
    assert settling.is_empty() == kept


@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2), min_size=1, max_size=9)
)
def test_the_probe_writes_what_the_format_says(tmp_path_factory: Any, rows: list[list[float]]) -> None:
    samples, file = SampleBuffer(), tmp_path_factory.mktemp("samples") / "x.bin"
    starts, ends = [2**60 + n for n in range(len(rows))], [2**61 + n for n in range(len(rows))]
    half = len(rows) // 2
    for part in (slice(None, half), slice(half, None)):
        samples.add(Chunk(len(rows[part]) + 1, starts[part], ends[part], rows[part]))
    check = samples.write(str(file))
    assert file.read_bytes() == burst_file(starts, ends, rows) and check == zlib.crc32(file.read_bytes())
    assert samples.populated == len(rows) + 2 and [p.name for p in file.parent.iterdir()] == ["x.bin"]
