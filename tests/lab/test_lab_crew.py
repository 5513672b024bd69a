"""Proofs side by side: each outcome as it comes, one that hangs stops none of the others, an end is clean."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from fathom.errors import BadInputError
from fathom.lab import Here, Outcome, run
from fathom.lab.crew import Progress, side_by_side
from fathom.lab.surroundings import room
from fathom.lab.technique import Technique
from fathom.machine import MachineFileError
from fathom.referee import Pair, Settings, Verdict
from fathom.referee.gate import Gate, StoppedError, TooLongError, Turn
from fathom.referee.launching import Fork, Spawn, Spawned
from fathom.referee.sides import SideError, SideProcess
from tests.lab.test_lab import CPU, MACHINE, SAMPLE, only, verdict
from tests.referee.test_referee_gate import FakeClock

PATIENCE_S = 20.0


def test_results_come_as_they_are_reached_and_all_of_them() -> None:
    meet = threading.Barrier(3, timeout=PATIENCE_S)

    def do(number: int, gate: Gate) -> int:
        meet.wait()  # only passes with three at a time
        return number

    assert sorted(side_by_side(range(6), do, 3)) == list(range(6))
    assert list(side_by_side([], do, 3)) == []


def test_an_error_ends_the_others_who_wait_at_the_gate() -> None:
    ended, waiting = list[int](), threading.Semaphore(0)

    def do(number: int, gate: Gate) -> int:
        if number == 0:
            with gate.entered(exclusive=True):
                for _ in range(2):
                    assert waiting.acquire(timeout=PATIENCE_S)
                raise MachineFileError("no room")
        try:
            waiting.release()
            with gate.entered(exclusive=True):
                return number
        except StoppedError:
            ended.append(number)
            raise

    with pytest.raises(MachineFileError):
        list(side_by_side(range(3), do, 3))
    assert set(ended) <= {1, 2}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proof")]


def test_who_wants_no_more_ends_all() -> None:
    stopped = threading.Event()

    def do(number: int, gate: Gate) -> int:
        if number == 0:
            return 0
        turn = Turn(gate)
        with pytest.raises(StoppedError), SideProcess({}, PATIENCE_S, _Silent(), turn):
            pass
        stopped.set()
        raise StoppedError

    running = side_by_side(range(2), do, 2)
    assert next(running) == 0
    running.close()
    assert stopped.is_set()


class _Silent(Spawn):
    """Starts what never answers."""

    def start(self, spec: Any, ask: int, answer: int, errors: Any) -> Any:
        command = ["sleep", "60"]
        process = subprocess.Popen(command, pass_fds=(ask, answer), start_new_session=True)
        self.pid = process.pid
        return Spawned(process)


def test_who_answers_not_within_its_limit_is_killed_before_anybody_samples() -> None:
    launcher = _Silent()
    with Gate() as gate:
        turn = Turn(gate, limit_s=0.2)
        with pytest.raises(TooLongError, match=r"0\.2 s"), SideProcess({}, PATIENCE_S, launcher, turn):
            pass
        with pytest.raises(ProcessLookupError):
            os.kill(launcher.pid, 0)
        with Turn(gate).exclusive():
            pass
    patient = _Silent()
    with pytest.raises(SideError, match="no answer"), SideProcess({}, 0.1, patient):
        pass


def test_a_fork_is_gone_when_it_was_ended_and_a_dead_source_is_told() -> None:
    with Fork() as fork:
        with SideProcess({"inputs": "math:sqrt", "target": "math:cos"}, PATIENCE_S, fork) as worker:
            assert worker.process is not None
            pid = worker.process.pid
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        fork._process.kill()
        fork._process.wait()
        with pytest.raises(BadInputError, match="spawn"), SideProcess({}, PATIENCE_S, fork):
            pass


# The lab's


@pytest.fixture
def four(tmp_path: Path) -> list[Technique]:
    paths = [tmp_path / f"technique_{number}.py" for number in range(4)]
    for path in paths:
        path.write_text(SAMPLE.replace("def a_sample", f"def {path.stem}"))
    return [only(path) for path in paths]


def ran(wanted: list[Technique], folder: Path, prove: Any, **more: Any) -> dict[str, Outcome]:
    result = run(wanted, machine=MACHINE, at=CPU, prove=prove, folder=folder, **more)
    return {outcome.technique: outcome for outcome in result}


def test_one_that_takes_too_long_fails_and_the_others_are_proven(
    four: list[Technique], tmp_path: Path
) -> None:
    def prove(pair: Pair, settings: Settings) -> Verdict:
        if pair.name == "technique-1":
            with SideProcess({}, settings.patience_s, _Silent(), settings.turn):
                pytest.fail("it never answers")
        return verdict()

    result = ran(four, tmp_path, prove, jobs=2, limit_s=0.3)
    assert result["technique-1"].state == "failed" and "--limit" in result["technique-1"].reason
    assert [outcome.state for name, outcome in result.items() if name != "technique-1"] == ["proven"] * 3
    again = ran(four, tmp_path, lambda *_: verdict(), jobs=2)
    assert sorted(outcome.state for outcome in again.values()) == ["kept"] * 3 + ["proven"]


def test_an_interrupt_keeps_what_was_proven(four: list[Technique], tmp_path: Path) -> None:
    def prove(pair: Pair, settings: Settings) -> Verdict:
        if pair.name == "technique-3":
            with SideProcess({}, settings.patience_s, _Silent(), settings.turn):
                pytest.fail("it never answers")
        return verdict()

    running = run(four, machine=MACHINE, at=CPU, prove=prove, folder=tmp_path, jobs=2)
    for _ in range(3):
        next(running)
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proof")]
    again = ran(four, tmp_path, lambda *_: verdict())
    assert sorted(outcome.state for outcome in again.values()) == ["kept"] * 3 + ["proven"]


def test_what_found_no_memory_is_tried_again_by_itself(four: list[Technique], tmp_path: Path) -> None:
    tried = list[str]()

    def prove(pair: Pair, settings: Settings) -> Verdict:
        tried.append(pair.name)
        if pair.name == "technique-2" and tried.count(pair.name) == 1:
            raise BadInputError("The baseline cannot be measured: CUDA out of memory.")
        return verdict()

    assert {outcome.state for outcome in ran(four, tmp_path, prove, jobs=2).values()} == {"proven"}
    assert tried[-1] == "technique-2" and len(tried) == 5


def test_a_technique_that_chooses_by_timing_shares_nothing(four: list[Technique], tmp_path: Path) -> None:
    path = four[0].path
    path.write_text(SAMPLE.replace("return seed", 'return "max-autotune"'))
    assert only(path).chooses and not four[1].chooses


def test_the_room_that_a_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Here(9.0, "", "2.11.0", lambda _: True)
    cores = "fathom.lab.surroundings.usable_cores"
    for count, host_gib, gpu_gib, expected in (
        (16, 128, 140, 12),
        (8, 128, 140, 6),
        (64, 20, 140, 3),
        (64, 2000, 24, 2),
        (1, 1, 1, 1),
        (64, None, None, 12),
    ):
        monkeypatch.setattr(cores, lambda count=count: count)
        sizes = [None if size is None else size * 2**30 for size in (host_gib, gpu_gib)]
        machine = {"host": {"memory_bytes": sizes[0]}, "gpus": [{"memory_bytes": sizes[1]}]}
        assert room(machine, gpu) == expected
        assert room(machine, CPU) == 1


def test_the_line_that_tells_how_far_it_has_come() -> None:
    said, clock = list[str](), FakeClock()
    progress = Progress(12, said.append, clock)
    progress.begin("one")
    tell = progress.begin("two")
    assert said[-1] == "0 done, 2 running, 10 to come · two: starting"
    clock.sleep(60)
    progress.end("one")
    tell("3 rounds")
    assert said[-1] == "1 done, 1 running, 10 to come, about 11 min more · two: 3 rounds"
    Progress(1, said.append, clock).begin("only")
    assert said[-1] == "only: starting"
