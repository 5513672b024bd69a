"""The probe finds the generators that are alive, and writes them for the importer."""

from __future__ import annotations

import contextlib
import json
import os
from types import SimpleNamespace

from fathom.probe.frames import FIFO, ITERATORS, Beacon
from fathom.probe.frames.iterators import Iterators, alive
from fathom.sounding.raw.stacks import _iterators


def feeding():
    yield 1
    yield 2


@contextlib.contextmanager
def ended():
    yield


def test_generators_are_alive_until_they_end():
    assert ("feeding", __file__) not in alive()
    source = feeding()
    next(source)
    assert ("feeding", __file__) in alive()
    list(source)
    with ended():
        pass
    assert not {("feeding", __file__), ("ended", __file__)} & alive()


def test_they_are_written_with_their_files(tmp_path):
    source = feeding()
    iterators = Iterators(str(tmp_path))
    iterators.note()
    next(source)
    iterators.note()
    record = json.loads((tmp_path / ITERATORS.format(pid=os.getpid())).read_bytes())
    assert record["generators"].count(["feeding", __file__]) == 1
    assert record["threads"] is None or record["threads"] >= 1


def test_positions_of_iterators_in_a_stack():
    frames = [
        ("main", "/p/a.py", 1),
        ("feed", "/p/a.py", 2),
        ("It.__next__", "/p/b.py", 3),
        ("f", "/p/b.py", 4),
    ]
    assert _iterators(frames, {"generators": [["feed", "/p/a.py"], ["f", "/p/a.py"]]}) == [1, 2]
    assert _iterators(frames, {}) is None


def test_iterators_are_searched_before_a_burst_and_never_in_a_recorded_step(tmp_path):
    os.mkfifo(tmp_path / FIFO)
    reader = os.open(tmp_path / FIFO, os.O_RDONLY | os.O_NONBLOCK)
    written = tmp_path / ITERATORS.format(pid=os.getpid())
    beacon = Beacon(SimpleNamespace(raw=str(tmp_path), note=lambda *_: None))
    for phase in ("settle", "clean", "transition", "timeline"):
        beacon.follow(phase)
        assert not written.exists()
    beacon.prepare("clean")
    assert not written.exists()
    beacon.prepare("timeline")
    assert written.exists()
    os.close(reader)
