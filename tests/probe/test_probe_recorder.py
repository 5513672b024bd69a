"""The recorder when threads open steps in turn, with stand-ins for what it controls."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fathom.probe import recorder
from fathom.probe.inherited import TEARDOWN
from fathom.probe.kineto import keeping_cupti, recorded_activities
from fathom.probe.orders import Job


class Logged:
    """Notes what it is asked for."""

    off = enabled = False
    any_thread = True

    def __init__(self, log: list[str], name: str) -> None:
        self._log, self._name = log, name

    def foreign(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self._log.append(f"{self._name}.{name}") or True


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> recorder.Recorder:
    monkeypatch.setattr(recorder, "activities", lambda: None)
    monkeypatch.setattr(recorder, "Kineto", lambda: Logged(log, "kineto"))
    monkeypatch.setattr(recorder, "CounterSampler", lambda _: Logged(log, "sampler"))
    monkeypatch.setattr(recorder.AllocatorSnapshot, "possible", lambda _: Logged(log, "snapshot"))
    cuda = SimpleNamespace(is_initialized=lambda: False)
    lib = SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_current_graph_task_id=lambda: -1))
    session = SimpleNamespace(torch=lib, raw="/nowhere", say=lambda _: None, note=lambda *_: None)
    return recorder.Recorder(session, lambda: False)


def elsewhere(action: Any, *arguments: Any) -> Any:
    """Return its result in another thread."""
    results: list[Any] = []
    other = threading.Thread(target=lambda: results.append(action(*arguments)))
    other.start()
    other.join()
    return results[0]


def strand(ours: recorder.Recorder) -> None:
    job = Job("timeline", 2)
    assert ours.arm(job) and ours.start(job, 5, 1)
    assert elsewhere(ours.stop, 7)[1] is False and ours.stranded


def test_only_its_thread_ends_a_burst_and_samples_never_move_to_a_later_one(ours, log):
    strand(ours)
    assert "kineto.disable" not in log and log[-1] == "sampler.close"
    assert not elsewhere(ours.land) and "kineto.disable" not in log
    assert ours.land() and log[-2:] == ["kineto.disable", "kineto.drop"]


def test_captures_are_not_recorded_into_an_open_burst(ours, log):
    strand(ours)
    before = list(log)
    elsewhere(ours.begin_capture)
    elsewhere(ours.end_capture, 8)
    assert log == before


def test_a_snapshot_of_memory_belongs_to_no_thread(ours, log):
    job = Job("timeline", 2)
    ours.arm(job), ours.start(job, 5, 1), ours.stop(7)
    assert ours.arm(Job("memory", 1)) and elsewhere(ours.start, Job("memory", 1), 9, 2)
    assert elsewhere(ours.stop, 10)[1] and log[-2:] == ["snapshot.begin", "snapshot.end"]


@pytest.mark.parametrize(
    ("initialised", "device_only", "recorded"),
    [(True, False, {"CPU", "CUDA"}), (True, True, {"CUDA"}), (False, False, {"CPU"}), (False, True, {"CPU"})],
)
def test_kineto_leaves_a_device_alone_that_the_program_does_not_use(
    initialised: bool, device_only: bool, recorded: set[str]
) -> None:
    lib = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: True, is_initialized=lambda: initialised),
        autograd=SimpleNamespace(_supported_activities=lambda: {"CPU", "CUDA"}),
        _C=SimpleNamespace(
            _profiler=SimpleNamespace(ProfilerActivity=SimpleNamespace(CPU="CPU", CUDA="CUDA"))
        ),
    )
    assert recorded_activities(lib, device_only) == recorded


@pytest.mark.parametrize("ours", ["1", None])
def test_cupti_is_kept_in_a_program_that_makes_no_call_of_cuda(
    monkeypatch: pytest.MonkeyPatch, ours: str | None
) -> None:
    """CUPTI is released at a later call of CUDA, for which the program would wait when it exits."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    monkeypatch.delenv(TEARDOWN, raising=False)
    monkeypatch.setattr(sys, "_fathom", {} if ours is None else {TEARDOWN: ours}, raising=False)
    with keeping_cupti(needed=False):
        assert getenv(TEARDOWN.encode()) is None
    with keeping_cupti(needed=True):
        assert getenv(TEARDOWN.encode()) == b"0" and TEARDOWN not in os.environ
    assert getenv(TEARDOWN.encode()) == (ours and ours.encode())
    os.unsetenv(TEARDOWN)
    monkeypatch.setenv(TEARDOWN, "1")  # the user's
    with keeping_cupti(needed=True):
        assert getenv(TEARDOWN.encode()) == b"1"
