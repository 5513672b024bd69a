"""Other proofs are stopped while one takes samples, and continue afterwards, whatever happens."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

import psutil
import pytest

from fathom.referee.gate import Gate, Order, Turn
from fathom.referee.launching import Spawn, Started
from fathom.referee.sides import SideProcess
from tests.support.clocks import FakeClock

PATIENCE_S = 20.0  # no test waits so long unless it fails


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works and leads its own group."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as process:
        yield process
        process.kill()


def _state(process: subprocess.Popen[bytes], wanted: set[str]) -> bool:
    return _comes_to(psutil.Process(process.pid), wanted)


def _comes_to(process: psutil.Process, wanted: set[str]) -> bool:
    """Whether it comes to one of these states in time; one that is gone is a zombie."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            status = process.status()
        except psutil.NoSuchProcess:
            status = psutil.STATUS_ZOMBIE
        if status in wanted:
            return True
        time.sleep(0.001)
    return False


def test_what_others_run_is_stopped_while_one_is_alone(running: subprocess.Popen[bytes]) -> None:
    with Gate() as gate, gate.entered(exclusive=False, group=running.pid):
        for _ in range(2):
            with gate.entered(exclusive=True):
                assert _state(running, {psutil.STATUS_STOPPED})
            assert _state(running, {psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING})


def test_what_has_ended_meanwhile_is_no_matter(running: subprocess.Popen[bytes]) -> None:
    with Gate() as gate, gate.entered(exclusive=False, group=running.pid):
        with gate.entered(exclusive=True):
            running.kill()  # a stopped one too
            running.wait(PATIENCE_S)
        with gate.entered(exclusive=True):
            pass


def test_an_error_of_one_who_is_alone_lets_the_others_go_on(running: subprocess.Popen[bytes]) -> None:
    with Gate() as gate, gate.entered(exclusive=False, group=running.pid):
        with pytest.raises(KeyError), gate.entered(exclusive=True):
            raise KeyError
        assert _state(running, {psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING})


def test_its_clock_stands_still_while_it_is_stopped_for_another(running: subprocess.Popen[bytes]) -> None:
    clock = FakeClock()
    with Gate(clock=clock) as gate:
        turn, other = Turn(gate, limit_s=10, clock=clock), Turn(gate, clock=clock)
        with turn.shared(running.pid):
            clock.sleep(2)
            with other.exclusive():
                before_ns = turn.now_ns()
                clock.sleep(100)
                assert turn.now_ns() == before_ns
            clock.sleep(1)
            assert turn.now_ns() == 3e9 and turn.left_s() == 7
        clock.sleep(4)
        assert turn.left_s() == 3
        with other.exclusive():
            clock.sleep(1)  # it was not in there
        assert turn.left_s() == 2


class Coming(Order):
    """Reports when somebody waits for exclusive use."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = threading.Event()

    def enqueue(self, who: int, exclusive: bool, stoppable: bool = False) -> None:
        super().enqueue(who, exclusive, stoppable)
        if exclusive:
            self.wanted.set()


class Interrupted(Spawn):
    """While it starts a process, another one waits for exclusive use."""

    def __init__(self, gate: Gate, order: Coming) -> None:
        self._gate, self._order, self.found = gate, order, list[bool]()
        self.other = threading.Thread(target=self._look)

    def start(self, spec: dict[str, Any], ask: int, answer: int, errors: IO[str]) -> Started:
        started = super().start(spec, ask, answer, errors)
        self._process = psutil.Process(started.pid)
        self.other.start()
        assert self._order.wanted.wait(PATIENCE_S)
        return started

    def _look(self) -> None:
        with self._gate.entered(exclusive=True):
            self.found.append(_comes_to(self._process, {psutil.STATUS_STOPPED}))


def test_a_process_that_was_just_started_is_stopped_too() -> None:
    order = Coming()
    with Gate(order) as gate:
        launcher = Interrupted(gate, order)
        spec = {"inputs": "math:sqrt", "target": "math:cos"}
        with SideProcess(spec, PATIENCE_S, launcher, Turn(gate)):
            launcher.other.join(PATIENCE_S)
    assert launcher.found == [True]


PARENT = """
import sys, time
from fathom.referee.launching import Fork, Spawn
from fathom.referee.sides import SideProcess

spec = {{"inputs": "math:sqrt", "target": "math:cos"}}
with {launcher}() as launcher, SideProcess(spec, 60, launcher) as worker:
    print(worker.process.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("launcher", ["Spawn", "Fork"])
def test_a_stopped_process_does_not_outlive_its_parent(launcher: str) -> None:
    command = [sys.executable, "-c", PARENT.format(launcher=launcher)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            process = psutil.Process(int(parent.stdout.readline()))
            process.suspend()
            assert _comes_to(process, {psutil.STATUS_STOPPED})
        finally:
            parent.kill()
    assert _comes_to(process, {psutil.STATUS_ZOMBIE})
