"""Access to the machine: exactly, on orders without threads; on threads, that an exclusive user is alone."""

from __future__ import annotations

import select
import threading
from collections import deque
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.blocks import LEAST, ProcessSampler, Seeds
from fathom.referee.gate import Gate, Order, StoppedError, TooLongError, Turn
from fathom.referee.pair import Settings
from tests.support.clocks import FakeClock

SHARED, ALONE = False, True
PATIENCE_S = 20.0  # no test waits so long unless it fails


# The order


def test_many_share_and_one_waits_for_those_who_cannot_be_stopped() -> None:
    order = Order()
    for who, stoppable in ((1, False), (2, True)):
        order.enqueue(who, SHARED, stoppable)
    assert order.admit() == [1, 2]
    order.enqueue(3, ALONE)
    assert order.admit() == []
    order.remove(1)
    assert order.admit() == [3] and order.exclusive == 3 and order.inside == {2: True, 3: False}


def test_while_one_waits_to_be_alone_only_those_come_in_who_can_be_stopped() -> None:
    order = Order()
    order.enqueue(1, SHARED)
    order.admit()
    order.enqueue(2, ALONE)
    order.enqueue(3, SHARED)
    order.enqueue(4, SHARED, stoppable=True)
    assert order.admit() == [4]
    order.remove(1)
    assert order.admit() == [2]
    order.enqueue(5, SHARED, stoppable=True)
    assert order.admit() == []
    order.remove(2)
    assert order.admit() == [3, 5]


def test_who_can_be_stopped_from_now_on_is_waited_for_no_more() -> None:
    order = Order()
    order.enqueue(1, SHARED)
    order.admit()
    order.enqueue(2, ALONE)
    assert order.admit() == []
    order.mark_stoppable(1)
    assert order.admit() == [2] and order.inside == {1: True, 2: False}


def test_who_gives_up_holds_nobody_back() -> None:
    order = Order()
    order.enqueue(1, SHARED)
    order.admit()
    order.enqueue(2, ALONE)
    order.enqueue(3, SHARED)
    assert order.admit() == []
    order.remove(2)
    assert order.admit() == [3]
    order.remove(99)


moves = st.lists(
    st.tuples(
        st.sampled_from(["shared", "stoppable", "exclusive", "started", "leave", "give up"]),
        st.integers(0, 30),
    ),
    max_size=80,
)


@given(moves)
def test_no_order_of_events_puts_anybody_who_works_on_beside_one_who_is_alone(
    moves: list[tuple[str, int]],
) -> None:
    order, numbers = Order(), count()
    lonely, inside, waiting = deque[int](), dict[int, str](), dict[int, str]()
    for move, choice in moves:
        if move in ("shared", "stoppable", "exclusive"):
            who = next(numbers)
            waiting[who] = move
            order.enqueue(who, move == "exclusive", move == "stoppable")
            if move == "exclusive":
                lonely.append(who)
        elif move == "started" and "shared" in inside.values():
            who = next(item for item, kind in inside.items() if kind == "shared")
            inside[who] = "stoppable"
            order.mark_stoppable(who)
        elif move == "leave" and inside:
            who = sorted(inside)[choice % len(inside)]
            order.remove(who)
            del inside[who]
        elif move == "give up" and waiting:
            who = sorted(waiting)[choice % len(waiting)]
            order.remove(who)
            if waiting.pop(who) == "exclusive":
                lonely.remove(who)
        for who in order.admit():
            inside[who] = waiting.pop(who)
            if inside[who] == "exclusive":
                assert lonely.popleft() == who  # first come, first served
        assert order.inside.keys() == inside.keys()
        kinds = sorted(inside.values())
        assert "exclusive" not in kinds or (kinds.count("exclusive") == 1 and "shared" not in kinds)
        assert inside or not waiting  # an empty room lets somebody in
    while inside or waiting:  # everybody gets in once those inside leave
        for who in list(inside):
            order.remove(who)
        inside = {who: waiting.pop(who) for who in order.admit()}
        assert inside or not waiting


# Threads


def test_threads_are_never_beside_one_that_is_alone() -> None:
    inside, wrong, lock = list[bool](), list[str](), threading.Lock()

    def work(gate: Gate, number: int) -> None:
        for step in range(60):
            exclusive = (number + step) % 3 == 0
            with gate.entered(exclusive=exclusive):
                with lock:
                    inside.append(exclusive)
                    if any(inside) and len(inside) > 1:
                        wrong.append(str(inside))
                threading.Event().wait(1e-5)
                with lock:
                    inside.remove(exclusive)

    with Gate() as gate:
        threads = [threading.Thread(target=work, args=(gate, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads) and not wrong and not inside


def test_closing_wakes_those_who_wait_and_lets_nobody_in() -> None:
    said: list[str] = []

    def wait(gate: Gate, exclusive: bool) -> None:
        try:
            with gate.entered(exclusive=exclusive):
                said.append("in")
        except StoppedError:
            said.append("stopped")

    with Gate() as gate:
        with gate.entered(exclusive=True):
            threads = [threading.Thread(target=wait, args=(gate, exclusive)) for exclusive in (True, False)]
            for thread in threads:
                thread.start()
            assert not select.select([gate.closing], [], [], 0)[0]
            gate.close()
            gate.close()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert said == ["stopped"] * 2 and select.select([gate.closing], [], [], 0)[0]
        with pytest.raises(StoppedError), gate.entered(exclusive=False):
            pass


# A proof's turn


def test_an_error_inside_leaves_the_gate_open() -> None:
    with Gate() as gate:
        turn = Turn(gate)
        for enter in (turn.shared, turn.exclusive):
            with pytest.raises(KeyError), enter():
                raise KeyError
        with turn.exclusive(), turn.shared():  # in exclusive use it shares with itself
            pass


def test_who_shares_cannot_become_alone() -> None:
    with Gate() as gate:
        turn = Turn(gate)
        with turn.shared(), pytest.raises(RuntimeError), turn.exclusive():
            pass


def test_a_quiet_one_never_shares() -> None:
    order = Order()
    with Gate(order) as gate, Turn(gate, quiet=True).shared():
        assert order.exclusive is not None


def test_waiting_for_others_is_not_its_own_time() -> None:
    clock = FakeClock()

    class Busy(Gate):
        def entered(self, *, exclusive: bool, group: int | None = None):  # type: ignore[no-untyped-def]
            clock.sleep(100)
            return super().entered(exclusive=exclusive, group=group)

    with Busy() as gate:
        turn = Turn(gate, limit_s=10, clock=clock)
        with turn.shared():
            clock.sleep(3)
        assert turn.now_ns() == 3e9 and turn.left_s() == 7
        with turn.exclusive():
            clock.sleep(7)
        for enter in (turn.shared, turn.exclusive):
            with pytest.raises(TooLongError, match="10 s"), enter():
                pass
        with turn.leaving():  # but it may clean up
            pass


def test_what_this_process_computes_disturbs_no_samples_of_a_gpu() -> None:
    order = Order()
    with Gate(order) as gate:
        for device, inside in (("cuda", 0), ("cpu", 1)):
            with Turn(gate, device=device).computing():
                assert len(order.inside) == inside


def test_what_ends_it_may_clean_up_behind_a_closed_gate() -> None:
    cleaned = []
    with Gate() as gate:
        turn = Turn(gate)
        gate.close()
        with turn.leaving():
            cleaned.append(1)
        with pytest.raises(KeyError), turn.leaving():
            raise KeyError
    assert cleaned


# A block


class Asked:
    """Stands for a process: notes what it is asked, and whether others may work meanwhile."""

    def __init__(self, order: Order) -> None:
        self.order, self.log, self.waited_ns = order, list[tuple[str, bool]](), 0

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, do: str, **more: Any) -> Any:
        self.log.append((do, self.order.exclusive is not None))
        self.waited_ns = 10**8
        return {"go": {"ns": 10**8, "queued": True}, "changed": []}.get(do)


class OneSide:
    """Stands for the sides of a proof: always the same process."""

    def __init__(self, worker: Asked, turn: Turn) -> None:
        self.worker, self.turn = worker, turn

    def start(self, side: str) -> Asked:
        return self.worker

    def held_result(self, worker: Asked, known: Any = None) -> str:
        worker.ask("save")
        return "the saved result"


@pytest.mark.parametrize("chosen", [0.0, 0.6, 0.99])
def test_a_block_samples_alone_and_prepares_and_saves_beside_others(chosen: float) -> None:
    order = Order()
    with Gate(order) as gate:
        worker = Asked(order)
        sides: Any = OneSide(worker, Turn(gate))
        result = ProcessSampler(sides, Settings(), "cpu", 8).block("baseline", Seeds(1), chosen)
    total = [exclusive for _, exclusive in worker.log]
    first, last = total.index(True), len(total) - total[::-1].index(True)
    assert all(total[first:last])  # once, and nobody in between
    before, inside, after = (
        [do for do, _ in worker.log[part]] for part in (slice(first), slice(first, last), slice(last, None))
    )
    assert set(before) == {"place", "go", "hold"} and after == ["save", "changed"]
    assert inside.count("hold") == 1 and inside.count("place") == 1 + LEAST == inside.count("go") - 1
    assert (
        len(result.samples[""]) == LEAST and result.kept is not None and result.kept[1] == "the saved result"
    )
