"""Sentences of the report that were false once, on real small recordings and on rows made by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fathom
from fathom.diagnosis.signals.input import NO_TOKENS, PADDED
from tests.diagnosis.test_findings_soundings import read
from tests.report.test_report import text
from tests.support.report_samples import gpu
from tests.support.running import run_fathom
from tests.support.timelines import Timeline, examination_of, store_of

MS = 1_000_000
STEPPING = """
import sys, time, fathom
for step in range(60):
    time.sleep(0.001)
    fathom.step()
"""


@pytest.mark.parametrize(
    ("ended", "status", "words"),
    [
        ("exited", 3, "the program exited with status 3"),
        ("crashed", 3, "the program exited with status 3"),  # as older soundings say it
        ("exception", 1, "the program ended with an exception (exit status 1)"),
        ("crashed", 139, "the program died of SIGSEGV"),
        ("killed", 137, "the program was killed (exit status 137)"),
    ],
)
def test_the_end_of_a_program_is_told_as_it_was(ended: str, status: int, words: str) -> None:
    examination = gpu()
    examination.sounding.ended, examination.sounding.exit_status = ended, status
    assert words in text(examination)
    assert not (status < 128 and "crashed" in text(examination))


@pytest.mark.programs
@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("sys.exit(3)", "exited with status 3"),
        ("raise ValueError", "ended with ValueError (exit status 1)"),
    ],
)
def test_leaving_with_a_status_is_no_crash(tmp_path: Path, last: str, words: str) -> None:
    (tmp_path / "train.py").write_text(STEPPING + last + "\n")
    done = run_fathom("run", "-o", "s.fathom", "--", sys.executable, "train.py", cwd=tmp_path)
    assert f"the program {words}" in done.stderr and "crashed" not in done.stderr


def accumulating(batches: list[int], work: list[int]) -> Timeline:
    """Three steps of 40 ms whose batches are asked for and whose work is launched at so many ms."""
    timeline = Timeline()
    for number in range(3):
        begin = (1 + 40 * number) * MS
        timeline.step(begin, begin + 40 * MS, step=number)
        for at in batches:
            opened = begin + at * MS
            timeline.add(
                "steps", step=number, parent=number, kind="micro-step", mark_ns=opened, end_ns=opened
            )
        for at in work:
            timeline.kernel(begin + at * MS + 10, begin + (at + 5) * MS, begin + at * MS)
    return timeline


def test_batches_taken_at_once_open_no_micro_steps(tmp_path: Path) -> None:
    """Not four micro-steps of 1.1, 0.16, 0.15 and 30 ms, of which the first three do nothing."""
    at_once = accumulating([0, 1, 2, 3], [4, 12, 20, 28])
    (device,) = examination_of(tmp_path / "a", at_once).devices
    assert device.micro_ms == [] and not [w for w in device.windows if w.kind == "micro-step"]
    spread = accumulating([0, 10, 20, 30], [1, 11, 21, 31])
    (device,) = examination_of(tmp_path / "b", spread).devices
    assert device.micro_ms == pytest.approx([10, 10, 10, 10], abs=1)


@pytest.mark.parametrize(("tokens", "why"), [(None, NO_TOKENS), (4096, PADDED)])
def test_a_loader_with_tokens_is_not_said_to_report_none(
    tmp_path: Path, tokens: int | None, why: str
) -> None:
    timeline = Timeline()
    for number in range(4):
        timeline.step(number * MS, (number + 1) * MS, source="loader", tokens=tokens)
        timeline.kernel(number * MS + 10, number * MS + 500, number * MS + 5)
    store_of(tmp_path / "made.fathom", timeline)
    assert read(tmp_path / "made.fathom").get("input.told_tokens").why == why
    assert "reports no tokens" not in PADDED


def stalling(slow_ms: int) -> Timeline:
    """Clean steps of 10 ms with one of 300, and one in detail that was recorded because it was slow."""
    timeline, now = Timeline(), 0
    for phase, burst, lengths in (
        ("clean", 1, [10] * 12 + [300] + [10] * 12),
        ("timeline", 2, [10] * 4),
        ("slow", 3, [10, slow_ms, 10]),
    ):
        timeline.phase, timeline.burst = phase, burst
        for ms in lengths:
            timeline.step(now, now + ms * MS)
            if phase != "clean":
                timeline.kernel(now + MS, now + 2 * MS, now + MS // 2)
                timeline.op("aten::add", now + MS // 4, now + MS)
            now += ms * MS
    return timeline


def test_a_slow_step_that_was_recorded_is_one_of_the_rare_long_ones(tmp_path: Path) -> None:
    store_of(tmp_path / "made.fathom", stalling(290))
    signals = read(tmp_path / "made.fathom")
    assert signals.get("step.rare").value.ms == 290
    assert fathom.open(tmp_path / "made.fathom").examine().slow[0].ms == 290


def test_of_slow_steps_that_are_not_the_longest_it_does_not_say_that_none_was_recorded(
    tmp_path: Path,
) -> None:
    store_of(tmp_path / "made.fathom", stalling(60))
    why = read(tmp_path / "made.fathom").get("step.rare").why
    assert why == "the longest step recorded in detail took 60.0 ms, the rare long ones up to 300.0 ms"


def test_what_a_loader_does_not_compute_is_not_called_reading() -> None:
    """The time of a fetch beyond user space: sleeping, locks, and reading files of 1 ms are all in it."""
    examination = gpu()
    assert examination.input is not None
    examination.input.read_ms = 38.7
    page = text(examination)
    assert "system calls and waits 38.7 ms" in page and "read 38.7" not in page


@pytest.mark.programs
@pytest.mark.parametrize("torch", [True, False])
def test_a_program_without_steps_is_told_to_call_step(tmp_path: Path, torch: bool) -> None:
    (tmp_path / "short.py").write_text("import torch\n" if torch else "print(1)\n")
    done = run_fathom("run", "-o", "s.fathom", "--", sys.executable, "short.py", cwd=tmp_path)
    assert "call fathom.step() where one ends" in " ".join(done.stderr.split())
    assert "no process of the program imported torch" not in done.stderr
