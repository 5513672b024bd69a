"""Which steps of a run are timed: not those in which the compiler ran."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.probe.knobs import ORDER
from fathom.probe.knobs.switching import Switching
from fathom.sounding import StepTimes
from fathom.tuner import running

MS = 1_000_000
WARM = 5


def times(steps: int, *compiling: int) -> StepTimes:
    """Steps of 1 ms, but 100 ms where the compiler runs at their beginning."""
    began = [0]
    for number in range(steps):
        began.append(began[-1] + (100 if number in compiling else 1) * MS)
    return StepTimes(began, [began[number] + 99 * MS for number in compiling], [])


@pytest.mark.parametrize(
    ("steps", "compiling", "first"),
    [
        (45, (), WARM),
        (45, (0, 1, 4), WARM),
        (45, (0, 8, 9), 10),  # lengths become dynamic in the second answer
        (45, (0, 44), WARM),  # it goes on compiling, and pays for that
        (8, (), 3),  # a program that ends early
    ],
)
def test_steps_are_timed_after_the_last_compilation(
    steps: int, compiling: tuple[int, ...], first: int
) -> None:
    assert running._settled(times(steps, *compiling), WARM) == first


@given(st.integers(1, 60), st.lists(st.integers(0, 59), max_size=4))
def test_at_least_half_of_the_steps_are_timed(steps: int, compiling: list[int]) -> None:
    known = times(steps, *sorted({number for number in compiling if number < steps}))
    plain, first = running._settled(times(steps), WARM), running._settled(known, WARM)
    assert plain <= first <= steps and steps - first >= (steps - plain) // 2


def blocks(
    place: Path, rows: list[tuple[bool, float | None]], monkeypatch: pytest.MonkeyPatch
) -> tuple[running.Run, running.Run]:
    (place / "raw").mkdir()
    (place / "raw" / "switched-7.json").write_text(json.dumps(rows))
    monkeypatch.setattr(running, "step_times", lambda _: StepTimes([], [], []))
    return running._read_switched(place)


def test_groups_in_which_the_compiler_ran_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = [(on, None if number == 1 else 9.0) for number, on in enumerate(ORDER)]
    rows = [*compiled, *((on, 2.0 if on else 4.0) for on in ORDER * 2)]
    without, under = blocks(tmp_path, rows, monkeypatch)
    assert without.samples == [4.0] * 4 and under.samples == [2.0] * 4


@pytest.mark.parametrize("groups", [0, 1])
def test_a_setting_that_compiles_in_most_groups_gets_separate_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    rows = [*((on, None) for on in ORDER * 2), *((on, 4.0) for on in ORDER * groups)]
    without, under = blocks(tmp_path, rows, monkeypatch)
    assert without.status == under.status == "not applied" and "compiler" in under.why


def test_a_block_in_which_the_compiler_ran_has_no_time(tmp_path: Path) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    session = SimpleNamespace(
        compilations=0, raw=str(tmp_path), stop=lambda: None, torch=SimpleNamespace(cuda=cuda)
    )
    switching = Switching(session, {}, warm=1, skip=1, every=2, groups=1)  # type: ignore[arg-type]
    for number in range(2 + len(ORDER) * 3 + 1):
        session.compilations += number in (
            1,
            2,
            7,
        )  # while warming up, in an untimed step, in the second block
        switching.step(number)
    switching.write()
    written = json.loads(next(tmp_path.glob("switched-*.json")).read_text())
    assert [on for on, _ in written] == list(ORDER)
    assert [ns is None for _, ns in written] == [False, True, False, False]
