"""Programs that launch steps far ahead of the device: what the device takes is what a step takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fathom.probe import conductor, session
from fathom.probe.counters import budget
from fathom.probe.plan import ProbePlan

HOST_NS, DEVICE_NS = 140_000, 5_000_000  # a step's launches, and its kernels


class Machine:
    """A clock, and a device with a queue, behind torch.cuda's calls."""

    def __init__(self) -> None:
        self.now_ns = self.done_ns = 10**18
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at_ns = 0

            def record(self, stream: object) -> None:
                self.at_ns = max(outer.done_ns, outer.now_ns)

            def query(self) -> bool:
                return self.at_ns <= outer.now_ns

            def synchronize(self) -> None:
                outer.now_ns = max(outer.now_ns, self.at_ns)

            def elapsed_time(self, end: Any) -> float:
                return (end.at_ns - self.at_ns) / 1e6

        self.Event = Event

    def step(self) -> None:
        self.now_ns += HOST_NS
        self.done_ns = max(self.done_ns, self.now_ns) + DEVICE_NS

    def synchronize(self, device: int = 0) -> None:
        self.now_ns = max(self.now_ns, self.done_ns)

    is_available = is_initialized = staticmethod(lambda: True)
    is_current_stream_capturing = staticmethod(lambda: False)
    current_stream = staticmethod(lambda device=0: None)
    current_device = device_count = memory_allocated = staticmethod(lambda device=0: 0)


class Recorder:
    """Stands in for Kineto: it arms, starts, and waits for the device as it stops."""

    running = stranded = light = bare = False
    sampler = SimpleNamespace(off=False, active=0.0)

    def __init__(self, machine: Machine) -> None:
        self.machine, self.jobs = machine, list[Any]()

    def arm(self, job: Any) -> bool:
        return True

    def start(self, job: Any, k: int, burst: int) -> bool:
        self.jobs.append(job)
        return True

    def stop(self, k: int, longest_ns: int = 0) -> tuple[int, bool, int]:
        self.machine.synchronize()
        return 100, True, self.machine.now_ns

    def mark(self, k: int) -> None:
        return None


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], Recorder]:
    """The records of sixty steps like these, and the recorder that got the orders."""
    machine = Machine()
    clock = SimpleNamespace(time_ns=lambda: machine.now_ns)
    monkeypatch.setattr(session, "time_ns", clock.time_ns)
    monkeypatch.setattr(conductor, "time", clock)
    monkeypatch.setattr(conductor.memory, "peaks", lambda cuda: [])
    plan = ProbePlan("counters", settle=5, step_on="mark", counters={"groups": [["a"] * 99]})
    torch = SimpleNamespace(cuda=machine, _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0))
    own = session.Session(str(tmp_path), plan, torch)
    own.conductor._recorder = recorder = Recorder(machine)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(own.records, "add", said.append)
    for _ in range(60):
        machine.step()
        own.signal("mark", 0)
    own.flush(machine.now_ns)
    return said, recorder


def test_no_step_is_clean_while_a_burst_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(conductor.memory, "peaks", lambda cuda: [])
    machine = Machine()
    cuda = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0)
    own = session.Session(
        str(tmp_path), ProbePlan("kernels", settle=5, step_on="mark"), SimpleNamespace(cuda=machine, _C=cuda)
    )
    own.conductor._recorder = recorder = Recorder(machine)
    recorder.land = lambda: False
    phases = []
    for step in range(30):
        recorder.stranded = 8 <= step < 20
        own.signal("mark", 0)
        phases.append(own.conductor.orders.phase)
    assert phases[7] == "clean" and set(phases[8:20]) == {"transition"} and "clean" in phases[20:]
    assert not recorder.jobs or phases.index("timeline") >= 20


def test_the_first_and_the_last_boundary_tell_the_length_of_clean_steps(recorded):
    said, _ = recorded
    marks = [mark for record in said if record["t"] == "device" for mark in record["marks"]]
    (first, began), (last, ended) = marks[0], marks[-1]
    assert last - first >= 8
    assert (ended - began) / (last - first) == pytest.approx(DEVICE_NS)


def test_counter_bursts_adapt_to_the_devices_activity(recorded):
    _, recorder = recorded
    sampled = [job for job in recorder.jobs if job.phase == "counters"]
    assert sampled
    room_ns = budget.samples(99) * budget.INTERVAL_NS
    assert all(job.windows * DEVICE_NS <= room_ns for job in sampled)
