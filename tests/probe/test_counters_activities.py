"""The device's work as CUPTI records it, against a library that lays records out as its header says."""

# ruff: noqa: N802  the functions of a library in C
from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.probe import recorder
from fathom.probe.counters import subscription
from fathom.probe.counters.activities import (
    BUFFER_BYTES,
    TEARDOWN,
    Activities,
    CuptiError,
    activities,
    loaded,
)
from fathom.probe.counters.launches import CallReconstruction, WorkItem
from fathom.probe.counters.records import demangled
from fathom.probe.orders import Job
from fathom.sounding.kineto import read_trace

SPIN = b"_ZN2at4cuda11spin_kernelEl"
BEGAN = 1_795_353_264_119_197_506


class Kernel(ctypes.Structure):
    _fields_ = [
        *(("kind", c_uint32), ("cache", c_uint8), ("shared_config", c_uint8), ("registers", c_uint16)),
        *(("requested", c_uint32), ("executed", c_uint32)),
        *(("start", c_uint64), ("end", c_uint64), ("completed", c_uint64)),
        *(("device", c_uint32), ("context", c_uint32), ("stream", c_uint32)),
        *(("grid", c_int32 * 3), ("block", c_int32 * 3), ("fixed", c_int32), ("dynamic", c_int32)),
        *(("local", c_uint32), ("local_total", c_uint32), ("correlation", c_uint32), ("grid_id", c_int64)),
        *(("name", ctypes.c_char_p), ("reserved", ctypes.c_void_p), ("queued", c_uint64)),
        *(("submitted", c_uint64), ("launch", c_uint8 * 4), ("shared", c_uint32), ("node", c_uint64)),
        *(("limit", c_uint32), ("graph", c_uint32), ("window", ctypes.c_void_p), ("rest", c_uint8 * 48)),
    ]


class Copy(ctypes.Structure):
    _fields_ = [
        *(
            ("kind", c_uint32),
            ("copy", c_uint8),
            ("source", c_uint8),
            ("target", c_uint8),
            ("flags", c_uint8),
        ),
        *(("bytes", c_uint64), ("start", c_uint64), ("end", c_uint64), ("device", c_uint32)),
        *(("context", c_uint32), ("stream", c_uint32), ("correlation", c_uint32), ("runtime", c_uint32)),
        *(("pad", c_uint32), ("reserved", ctypes.c_void_p), ("node", c_uint64), ("rest", c_uint8 * 24)),
    ]


class Set(ctypes.Structure):
    _fields_ = [
        *(("kind", c_uint32), ("value", c_uint32), ("bytes", c_uint64), ("start", c_uint64)),
        *(("end", c_uint64), ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32)),
        *(("correlation", c_uint32), ("flags", c_uint16), ("memory", c_uint16), ("pad", c_uint32)),
        *(("reserved", ctypes.c_void_p), ("node", c_uint64), ("rest", c_uint8 * 16)),
    ]


class Overhead(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("rest", c_uint8 * 60)]


class Api(ctypes.Structure):
    _fields_ = [
        *(("kind", c_uint32), ("cbid", c_uint32), ("start", c_uint64), ("end", c_uint64)),
        *(("process", c_uint32), ("thread", c_uint32), ("correlation", c_uint32), ("returned", c_uint32)),
    ]


class Call(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = [
        *(("site", c_uint32), ("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p)),
        *(("returned", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("context", ctypes.c_void_p)),
        *(("context_id", c_uint32), ("data", ctypes.POINTER(c_uint64)), ("correlation", c_uint32)),
    ]


SIZES = {10: Kernel, 1: Copy, 2: Set, 17: Overhead, 5: Api}
CALLED = (
    *("cudaGetDevice_v3020", "cudaLaunchKernel_v7000", "__cudaLaunchKernel_ptsz_v13000"),
    *("cudaFree_v3020", "cudaStreamSynchronize_v3020"),
)
WAIT = 1 + CALLED.index("cudaStreamSynchronize_v3020")


class Cupti:
    """Fills the buffers that it is given, `room` bytes of each. `held`: another profiler has it; its clock is
    `off_ns` off, and its own only comes with activities."""

    def __init__(
        self, room: int = BUFFER_BYTES, off_ns: int = 0, fails: str = "", keeps: bool = False
    ) -> None:
        self.room, self.off_ns, self.fails, self.keeps = room, off_ns, fails, keeps
        self.on: set[int] = set()
        self.latency, self.thread_ids, self.off = 0, 0, set[int]()
        self.zeroed, self.waited = 0, 0  # whether buffers come zeroed, and how often a launch waited for that
        self.open: list[list[int]] = []  # address, bytes used
        self.callback: Any = None
        self.watched: set[int] = set()  # calls for which the subscriber is called
        self.inside, self.finalized = -1, 0

    def cuptiSubscribe(self, subscriber: Any, callback: Any, data: Any) -> int:
        if self.keeps or self.callback:
            return 39
        self.callback, subscriber._obj.value = callback, 77
        return 0

    def cuptiUnsubscribe(self, subscriber: Any) -> int:
        assert subscriber.value == 77 and self.callback
        self.callback, self.watched = None, set()
        return 0

    def cuptiEnableCallback(self, on: Any, subscriber: Any, domain: int, number: int) -> int:
        assert on.value == 1 and subscriber.value == 77 and domain == 2
        self.watched.add(number)
        return 0

    def cuptiEnableDomain(self, on: Any, subscriber: Any, domain: int) -> int:
        self.watched = set(range(1, 1 + len(CALLED)))
        return 0

    def cuptiFinalize(self) -> int:
        assert self.inside == 1 and not self.on  # on leaving a call, with nothing being recorded
        self.callback, self.watched, self.finalized = None, set(), self.finalized + 1
        return 0

    def calls(self, number: int, correlation: int = 0) -> None:
        """The program calls the runtime."""
        for site in (0, 1):
            call = Call(site=site, correlation=correlation)
            self.inside = site
            if number in self.watched and self.callback:
                self.callback(None, 2, number, ctypes.addressof(call))
        self.inside = -1

    def cuptiGetTimestamp(self, into: Any) -> int:
        into._obj.value = time.time_ns() + self.off_ns - (0 if self.on else BEGAN)
        return 0

    def cuptiGetCallbackName(self, domain: int, number: int, into: Any) -> int:
        if domain != 2 or number > len(CALLED):
            return 1
        into._obj.value = CALLED[number - 1].encode()
        return 0

    def cuptiActivityEnableRuntimeApi(self, number: int, on: Any) -> int:
        assert 5 in self.on  # by itself, no call is recorded
        self.off.discard(number) if on.value else self.off.add(number)
        return 0

    def cuptiActivityEnableLatencyTimestamps(self, on: Any) -> int:
        self.latency = on.value
        return 0

    def cuptiSetThreadIdType(self, which: int) -> int:
        self.thread_ids = which
        return 0

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested, self.completed = requested, completed
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.on.add(kind)
        return 15 if self.fails == "enable" else 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.on.discard(kind)
        return 0

    def cuptiActivitySetAttribute(self, which: int, size: Any, value: Any) -> int:
        assert which == 5 and size._obj.value == ctypes.sizeof(value._obj)
        self.zeroed = value._obj.value
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        while self.open:
            address, used = self.open.pop(0)
            self.completed(None, 0, address, BUFFER_BYTES, used)
        return 0

    def happens(self, record: ctypes.Structure) -> None:
        data = bytes(record)
        if record.kind not in self.on and record.kind != 17:
            return
        if record.kind == 5 and record.cbid in self.off:
            return
        if not self.open or self.open[-1][1] + len(data) > self.room:
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(7)
            self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
            assert buffer.value and buffer.value % 8 == 0 and size.value == BUFFER_BYTES and most.value == 0
            self.waited += not self.zeroed
            assert not self.zeroed or not any(ctypes.string_at(buffer.value, BUFFER_BYTES))
            self.open.append([buffer.value, 0])
        address, used = self.open[-1]
        ctypes.memmove(address + used, data, len(data))
        self.open[-1][1] += len(data)

    def cuptiActivityGetNextRecord(self, buffer: Any, size: Any, record: Any) -> int:
        into = record._obj
        size_of = ctypes.sizeof(SIZES[c_uint32.from_address(into.value).value]) if into.value else 0
        following = into.value + size_of if into.value else buffer.value
        if following >= buffer.value + size.value:
            return 21
        into.value = following
        return 0


def kernel(number: int, name: bytes, **more: int) -> Kernel:
    times = {"start": BEGAN + 10_000 * number, "end": BEGAN + 10_000 * number + 1_234}
    said = Kernel(
        kind=10, registers=39, device=1, context=1, stream=7, fixed=16, dynamic=1024, local=8, **times
    )
    said.name, said.correlation, said.node = name, 100 + number, more.get("node", 0)
    said.grid[:], said.block[:] = (16, 2, number + 1), (32, 4, 1)
    return said


def burst(cupti: Cupti, records: list[ctypes.Structure]) -> Activities:
    ours = Activities(cupti)
    assert ours.ready(lambda: None)
    ours.enable()
    for record in records:
        cupti.happens(record)
    ours.disable()
    return ours


def test_work_comes_out_as_it_was_recorded(tmp_path: Path) -> None:
    names = [b"_Z3addIfEvPT_S1_", b"triton_poi_fused_add_0", b"_Znot mangled"]
    copy = Copy(kind=1, copy=1, source=2, target=3, bytes=4096, device=1, stream=20, correlation=7)
    copy.start, copy.end = BEGAN + 100, BEGAN + 50_000
    fill = Set(kind=2, bytes=512, device=1, stream=7, correlation=8, memory=3, value=1)
    fill.start, fill.end = BEGAN + 60_000, BEGAN + 60_001
    kernels = [kernel(number, name, node=5 * number) for number, name in enumerate(names)]
    ours = burst(Cupti(), [*kernels, copy, Overhead(kind=17), fill])
    assert ours.save(str(tmp_path / "trace.json")) == 5

    result = read_trace(tmp_path / "trace.json", phase="counters", burst=3)
    assert not result.problems
    table = result.tables["kernels"].sort("correlation")
    assert table["name"].to_list() == [
        *("Memcpy HtoD (Pinned -> Device)", "Memset (Device)"),
        *("void add<float>(float*, float*)", "triton_poi_fused_add_0", "_Znot mangled"),
    ]
    assert table["start_ns"].to_list() == [r.start for r in (copy, fill, *kernels)]
    assert table["end_ns"].to_list() == [r.end for r in (copy, fill, *kernels)]
    assert table["kind"].to_list() == ["copy", "set", "compute", "compute", "compute"]
    assert table["bytes"].to_list() == [4096, 512, None, None, None]
    assert table["grid"].to_list()[2:] == ["16x2x1", "16x2x2", "16x2x3"]
    assert table["graph_node"].to_list()[2:] == [None, 5, 10]
    said = table.row(-1, named=True)
    wanted = {
        "device": 1,
        "stream": 7,
        "block": "32x4x1",
        "registers": 39,
        "shared_bytes": 1040,
        "local_bytes": 8,
    }
    assert {key: said[key] for key in wanted} == wanted


def launched(number: int, calls: bool) -> list[ctypes.Structure]:
    """A launch every 25 µs: what PyTorch asks before it, its call, and its kernel, queued 2 µs later."""
    begun = BEGAN + 25_000 * number
    work = kernel(number, b"k%d" % (number % 3))
    work.start, work.end = begun + 9_000, begun + 10_000
    work.queued, work.submitted = begun + 2_000, begun + 4_000
    if not calls:
        return [work]
    asked = Api(kind=5, cbid=1, thread=71, correlation=5000 + number, start=begun - 900, end=begun - 800)
    call = Api(kind=5, cbid=2, thread=71 + number % 2, correlation=100 + number)
    call.start, call.end = begun, begun + 5_000
    return [asked, call, work]


def traced(cupti: Cupti, ours: Activities, path: Path, records: list[ctypes.Structure], wait: int = 0) -> Any:
    """Record a burst of `records`, and of one call with the correlation `wait` that waits for 2 ms."""
    assert ours.ready(lambda: None)
    ours.enable(calls=True)
    for record in records:
        cupti.happens(record)
    if wait:
        cupti.calls(WAIT, wait)
    ours.disable()
    assert not cupti.on and not cupti.latency and not cupti.callback
    ours.save(str(path), thread=70)
    assert ours.detach(lambda: cupti.calls(1))
    return read_trace(path, phase="timeline", burst=3) if path.exists() else None


def test_calls_are_recorded_first_and_then_derived_from_queue_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupti = Cupti()
    ours = Activities(cupti)
    first = [record for number in range(60) for record in launched(number, calls=True)]
    assert traced(cupti, ours, tmp_path / "first.json", first) is None and ours.rehearsal
    assert cupti.thread_ids == 1 and cupti.off == {1}

    copy = Copy(kind=1, copy=1, source=2, target=3, bytes=64, device=1, stream=7, correlation=105)
    copy.start, copy.end = BEGAN + 5 * 25_000 + 9_000, BEGAN + 5 * 25_000 + 10_000
    later = [record for n in range(60) if n != 5 for record in launched(n, calls=True)]
    waited = [BEGAN + 60 * 25_000, BEGAN + 60 * 25_000 + 700_000]
    monkeypatch.setattr(subscription, "time", SimpleNamespace(time_ns=iter([*waited, 0, 0]).__next__))
    trace = traced(cupti, ours, tmp_path / "second.json", [*later, copy], wait=160)
    assert not trace.problems
    result = trace.tables["launches"].sort("correlation")
    assert result.height == 61 and result["thread"][:60].unique().to_list() == [70]
    begun = [BEGAN + 25_000 * n for n in range(60)]
    known = [n for n in range(60) if n != 5]
    assert [result["start_ns"][n] for n in known] == [begun[n] for n in known]
    assert [result["end_ns"][n] for n in known] == [begun[n] + 5_000 for n in known]
    assert (result["api"][5], result["api"][60]) == ("cudaMemcpyAsync", "cudaStreamSynchronize")
    assert result["start_ns"][5] == begun[5]  # the device was idle: launches take 9 µs to begin
    assert result["thread"][60] == threading.get_native_id()
    offset = ours.clock[0] if ours.clock else None
    assert [result["start_ns"][60], result["end_ns"][60]] == [ns + offset for ns in waited]


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 20_000_000)), min_size=2, max_size=60))
def test_reconstructed_calls_follow_each_other_however_late_the_device_is(
    launches: list[tuple[int, int]],
) -> None:
    """A launch every 10 µs and more, submitted at once or after up to 20 ms, when the device gets to it."""
    begun, work = BEGAN, []
    for number, (pause, lag) in enumerate(launches):
        begun += 10_000 + pause
        queued, submitted = begun + 2_500, begun + 3_500 + lag
        work.append(WorkItem(number, "kernel", 1, submitted + 2_000, submitted + 3_000, queued, submitted))
    calls = CallReconstruction().missing(work, [], 7)
    assert [call.start for call in calls] == [item.queued - 2_500 for item in work]
    for call, following, (_, lag) in zip(calls, [*calls[1:], None], launches, strict=True):
        assert call.start < call.end <= (following.start if following else call.start + 6_000)
        if following is None or call.start + 4_000 + lag > following.start:
            assert call.end <= call.start + 6_000  # late submissions do not make a call longer
        else:
            assert call.end == call.start + 4_000 + lag


def test_a_burst_leaves_no_trace_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TEARDOWN, raising=False)
    cupti = Cupti()
    ours = burst(cupti, [kernel(0, b"k")])
    ours.save(str(tmp_path / "trace.json"))
    assert not ours.detach(lambda: None) and not cupti.callback  # no call came: CUPTI stays, unused
    assert ours.detach(lambda: [cupti.calls(number) for number in (1, 2)]) and cupti.finalized == 1
    monkeypatch.setenv(TEARDOWN, "0")
    assert not ours.detach(lambda: cupti.calls(1)) and cupti.finalized == 1
    monkeypatch.delenv(TEARDOWN)
    cupti.keeps = True  # another profiler has begun
    assert not ours.detach(lambda: cupti.calls(1)) and cupti.finalized == 1
    cupti.keeps = False
    assert burst(cupti, [kernel(1, b"k")]).save(str(tmp_path / "trace.json")) == 1


def test_calls_of_graphs_and_of_rare_launches_are_recorded_as_they_are(tmp_path: Path) -> None:
    for records in (
        [record for n in range(0, 3000, 50) for record in launched(n, calls=True)],
        [kernel(n, b"k", node=1 + n) for n in range(30)],
    ):
        cupti = Cupti()
        ours = Activities(cupti)
        for name in ("first", "second"):
            result = traced(cupti, ours, tmp_path / f"{name}.json", records).tables["launches"]
            assert set(result["thread"].to_list()) <= {71, 72} and not ours.rehearsal
            assert result.height == sum(isinstance(record, Api) and record.cbid == 2 for record in records)


def test_many_buffers_are_complete_and_the_next_burst_begins_empty(tmp_path: Path) -> None:
    cupti = Cupti(room=3 * ctypes.sizeof(Kernel))
    ours = burst(cupti, [kernel(number, b"k") for number in range(10)])
    assert ours.save(str(tmp_path / "first.json")) == 10
    assert not cupti.waited and not cupti.zeroed
    assert ours.ready(lambda: None)
    ours.enable()
    cupti.happens(kernel(0, b"k"))
    ours.disable()
    assert ours.save(str(tmp_path / "second.json")) == 1 and not cupti.on


@pytest.mark.parametrize(
    ("names", "launched", "kept"),
    [
        ([SPIN, b"add", SPIN], True, ["add", "at::cuda::spin_kernel(long)"]),
        ([b"add", SPIN], True, ["add"]),  # another thread was quicker
        ([SPIN], True, []),
        ([SPIN], False, ["at::cuda::spin_kernel(long)"]),  # the program's own
    ],
)
def test_the_probes_first_launch_is_not_written(
    tmp_path: Path, names: list[bytes], launched: bool, kept: list[str]
) -> None:
    cupti = Cupti()
    ours = Activities(cupti)
    assert ours.ready(lambda: None)
    ours.enable(lambda: launched)
    for number, name in reversed(list(enumerate(names))):  # threads give their records in any order
        cupti.happens(kernel(number, name))
    ours.disable()
    assert ours.save(str(tmp_path / "trace.json")) == len(kept)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sorted(event["name"] for event in events) == kept


class Cuda:
    """torch.cuda of a program that works on device 1; `fails`: the program's own error is met again."""

    def __init__(self, initialized: bool = True, fails: bool = False) -> None:
        self.initialized, self.fails, self.launched, self.current = initialized, fails, [], 0

    def is_initialized(self) -> bool:
        return self.initialized

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        self.current = index
        yield
        self.current = 0

    def _sleep(self, cycles: int) -> None:
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.launched.append(self.current)


@pytest.mark.parametrize(
    ("cuda", "launched"), [(Cuda(), [1]), (Cuda(initialized=False), []), (Cuda(fails=True), [])]
)
def test_a_burst_begins_with_the_probes_launch(
    monkeypatch: pytest.MonkeyPatch, cuda: Cuda, launched: list[int]
) -> None:
    result: list[bool] = []
    activities = Activities(Cupti())
    monkeypatch.setattr(activities, "enable", lambda launch, **_: result.append(launch()))
    monkeypatch.setattr(recorder, "activities", lambda: activities)
    monkeypatch.setattr(recorder, "Kineto", lambda: Quiet([], "kineto"))
    monkeypatch.setattr(recorder, "CounterSampler", lambda _: Quiet([], "sampler"))
    monkeypatch.setattr("fathom.probe.counters.activities.device_in_use", lambda _: 1)
    lib = SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_current_graph_task_id=lambda: -1))
    ours = recorder.Recorder(SimpleNamespace(torch=lib), lambda: False)
    monkeypatch.setattr(ours, "_wait_for_device", lambda: None)
    assert ours.arm(Job("counters", 2)) and ours.start(Job("counters", 2), 5, 1)
    assert cuda.launched == launched and result == [bool(launched)]


def test_it_waits_until_another_profiler_has_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = Cupti(keeps=True)
    looks: list[int] = []

    def touch() -> None:
        looks.append(1)
        cupti.keeps = len(looks) < 3

    monkeypatch.setenv(TEARDOWN, "1")
    assert Activities(cupti).ready(touch) and len(looks) == 3 and not cupti.on
    monkeypatch.setattr("fathom.probe.counters.activities.PATIENCE_S", {"1": 0.05})
    assert not Activities(Cupti(keeps=True)).ready(lambda: None)
    assert not Activities(Cupti(off_ns=-BEGAN)).ready(lambda: None)  # a clock that nobody knows
    assert not Activities(Cupti(fails="enable")).ready(lambda: None)


def test_a_failed_call_is_reported() -> None:
    cupti = Cupti(fails="enable")
    with pytest.raises(CuptiError, match="cuptiActivityEnable failed with status 15"):
        Activities(cupti).enable()
    assert not cupti.zeroed  # for others give buffers that are not


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        (
            [
                "7f0-7f1 r-xp 0 08:01 1 /usr/lib/libcupti.so.13",
                "7f2-7f3 r-xp 0 08:01 1 /usr/lib/libcupti.so.13",
            ],
            0,
        ),
        (["7f0-7f1 r-xp 0 08:01 1 /usr/lib/libc.so.6", "7f0-7f1 rw-p 0 00:00 0"], None),
        (["7f0-7f1 r-xp 0 08:01 1 /a/libcupti.so.13", "7f0-7f1 r-xp 0 08:01 1 /b/libcupti.so.12"], None),
    ],
)
def test_the_library_is_the_one_that_the_process_has_loaded(tmp_path: Path, lines: Any, path: Any) -> None:
    (tmp_path / "maps").write_text("\n".join(lines) + "\n")
    assert loaded(str(tmp_path / "maps")) == (lines[0].split()[-1] if path == 0 else None)
    assert loaded(str(tmp_path / "missing")) is None


def test_the_library_is_not_called_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fathom.probe.counters.activities._of", lambda path: path)
    (tmp_path / "maps").write_text("7f0-7f1 r-xp 0 08:01 1 /usr/lib/libcupti.so.13\n")
    assert activities(str(tmp_path / "maps")) is None
    with (tmp_path / "maps").open("a") as maps:
        maps.write("7f2-7f3 r-xp 0 08:01 1 /usr/lib/libcuda.so.580.1\n")
    assert activities(str(tmp_path / "maps")) == "/usr/lib/libcupti.so.13"


def test_names_of_c_are_as_they_are() -> None:
    assert demangled(b"ampere_sgemm_128x64_nn") == b"ampere_sgemm_128x64_nn"
    assert demangled(b"_ZN2at6native4fillEv") == b"at::native::fill()"


class Quiet:
    """A Kineto and a sampler that say what is done to them."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.off, self.enabled = log, name, False, False

    def foreign(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.log.append(f"{self.name}.{name}") or True


@pytest.mark.parametrize("keeps", [False, True])
def test_kineto_traces_only_where_it_keeps_cupti(monkeypatch: pytest.MonkeyPatch, keeps: bool) -> None:
    log: list[str] = []
    cupti = Activities(Cupti(keeps=keeps))
    monkeypatch.setattr(recorder, "activities", lambda: cupti)
    monkeypatch.setattr(recorder, "Kineto", lambda: Quiet(log, "kineto"))
    monkeypatch.setattr(recorder, "CounterSampler", lambda _: Quiet(log, "sampler"))
    cuda = SimpleNamespace(is_initialized=lambda: False)
    lib = SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_current_graph_task_id=lambda: -1))
    ours = recorder.Recorder(SimpleNamespace(torch=lib), lambda: False)
    assert ours.arm(Job("counters", 2)) and ours.start(Job("counters", 2), 5, 1)
    kinetos = [line for line in log if line.startswith("kineto")]
    assert kinetos == ([] if not keeps else ["kineto.prepare", "kineto.enable"])
    assert cupti.enabled != keeps
    assert log.index("sampler.arm") < log.index("sampler.start")


@pytest.mark.parametrize(("given", "waits"), [("1", 3), ("0", 1), (None, 3)])
def test_a_burst_begins_once_the_one_before_can_no_longer_end_it(
    monkeypatch: pytest.MonkeyPatch, given: str | None, waits: int
) -> None:
    """Kineto finalises CUPTI at a call of CUDA after its burst, be the next one begun or not."""
    monkeypatch.setenv(TEARDOWN, given) if given else monkeypatch.delenv(TEARDOWN, raising=False)
    log: list[str] = []
    cupti = Cupti()
    activities = Activities(cupti)
    monkeypatch.setattr(recorder, "activities", lambda: activities)
    monkeypatch.setattr(recorder, "Kineto", lambda: Quiet(log, "kineto"))
    monkeypatch.setattr(recorder, "CounterSampler", lambda _: Quiet(log, "sampler"))

    def synchronize(*_: Any) -> None:
        log.append("cuda")
        cupti.keeps = log.count("cuda") < 4

    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize, current_device=lambda: 0)
    lib = SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_current_graph_task_id=lambda: -1))
    monkeypatch.setattr(recorder, "device_in_use", lambda _: 0)
    session = SimpleNamespace(torch=lib, raw="/nowhere", say=lambda _: None, note=lambda *_: None)
    ours = recorder.Recorder(session, lambda: False)
    ours.arm(Job("timeline", 2)), ours.start(Job("timeline", 2), 5, 1)
    assert "cuda" not in log
    cupti.keeps = True
    ours.stop(7)
    before = log.count("cuda")
    ours.arm(Job("timeline", 2))
    assert log.count("cuda") - before == waits and log[-1] == "kineto.prepare"
