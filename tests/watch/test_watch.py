"""A running program is followed through its raw records; alerts request a timeline and name what changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import polars as pl
import pytest

import fathom
from benchmarks.comparison.planting import copied, slower
from fathom.analysis.live import Alert, FoundCause, Insight, Live, Slowdown
from fathom.report import live_events, live_line
from fathom.watch import Rule, Watch, examining
from fathom.watch.examining import copy
from fathom.watch.insights import PASSED, Examiner
from tests.support.live_recording import BEGUN, LiveRecording, S
from tests.support.live_views import moved
from tests.support.paths import EXAMPLES


@pytest.fixture
def recording(tmp_path):
    return LiveRecording(tmp_path / "run.fathom")


def watching(recording, rule=None, **options):
    return Watch(recording.folder, rule, clock=lambda: recording.now, **{"examine": False, **options})


def viewed(watch):
    watch.poll()
    return watch.view()


def test_recent_steps_rates_and_waits_are_those_of_the_records(recording):
    watch = watching(recording)
    recording.steps(100, 20, wait_ms=5)
    live = viewed(watch)
    rank = live.lead
    assert (live.state, rank.steps, rank.step, rank.phase) == ("running", 100, 100, "clean")
    assert rank.step_ms == pytest.approx(20) and rank.input_share == pytest.approx(0.25)
    assert rank.samples_per_s == pytest.approx(1600) and rank.tokens_per_s is None
    assert (rank.samples, rank.input_s) == (3200, pytest.approx(0.5))


def test_profiled_steps_are_not_the_step_time(recording):
    watch = watching(recording)
    recording.steps(100, 20)
    recording.phase, recording.burst = "timeline", 2
    recording.steps(400, 90)
    live = viewed(watch)
    assert live.lead.profiled and live.lead.clean_ms is None
    assert "slowed down while details are recorded" in live_line(live) and "%)" not in live_line(live)
    recording.phase, recording.burst = "clean", 3
    recording.steps(50, 20)
    assert viewed(watch).lead.step_ms == pytest.approx(20, rel=0.1)


def test_another_source_of_steps_starts_again(recording):
    watch = watching(recording)
    recording.steps(30, 20)
    recording.say(t="clock", source="loader", k=31, ns=recording.now)
    recording.k, recording.now = 30, recording.now + S
    recording.say(t="marks", k=31, ns=[recording.now], source="loader", phase="settle", burst=1, kind="")
    recording.k = 31
    recording.steps(10, 40)
    rank = viewed(watch).lead
    assert (rank.source, rank.steps, rank.step_ms) == ("loader", 10, pytest.approx(40))


def test_a_program_without_marks_stalls_and_one_that_ended_does_not(recording):
    watch = watching(recording)
    recording.steps(100, 20)
    recording.now += 60 * S
    live = viewed(watch)
    assert live.state == "stalled" and live.lead.since_mark_s == pytest.approx(60)
    recording.end(ended="exited", exit_status=3)
    live = viewed(watch)
    assert (live.state, live.ended, live.exit_status, watch.over) == ("ended", "exited", 3, True)


def test_workers_and_damaged_records_are_no_ranks(recording):
    (recording.raw / "proc-9.jsonl").write_text(
        '{"t":"process","pid":9,"role":"worker"}\n{"t":"marks"}\n{bad\n'
    )
    recording.steps(30, 20)
    recording.say(t="marks", k=31, ns="no list", phase="clean")
    recording.say(t="batches", columns=[], rows=[[1]])
    live = viewed(watching(recording))
    assert [rank.pid for rank in live.ranks] == [7] and live.lead.steps == 30


def test_notes_are_shown_without_secrets(recording):
    recording.say(t="note", what="fault", text="failed for https://me:hunter2@host/", ns=recording.now)
    recording.steps(3, 20)
    [note] = viewed(watching(recording)).lead.notes
    assert note.startswith("fault: failed for") and "hunter2" not in note


def test_parts_of_a_job_are_ranks_of_one_view(tmp_path):
    for rank, ms in enumerate((20, 30, 20)):
        part = LiveRecording(tmp_path / "job" / f"part-{rank}.fathom", rank=rank, pid=70 + rank)
        part.steps(100, ms)
    watch = Watch(tmp_path / "job", clock=lambda: part.now, examine=False)
    live = viewed(watch)
    assert [rank.rank for rank in live.ranks] == [0, 1, 2] and live.lead.rank == 1


def test_sensors_give_the_newest_reading_and_rates(recording):
    for second in range(4):
        recording.now += S
        recording.sensors(device=0, power_w=500 + second, throttle=0x4, link_rx_bytes=second * 10**9)
        recording.sensors(device=-1, energy_j=50.0 * second, busy_percent=30.0, memory_bytes=2**30)
    gpu, host = viewed(watching(recording)).devices
    assert (gpu.name, gpu.power_w, gpu.throttle, gpu.link_rx_bytes_per_s) == ("H200", 503, ["power cap"], 1e9)
    assert (host.power_w, host.busy_percent, host.memory_bytes) == (50, 30, 2**30)


# alerts


def test_an_alert_requests_a_timeline_of_slow_steps_once(recording):
    watch = watching(recording, Rule(20, 50))
    recording.steps(500, 20)
    assert viewed(watch).alerts == []
    recording.steps(60, 40)
    [alert] = viewed(watch).alerts
    assert (alert.baseline_ms, alert.step_ms) == (pytest.approx(20), pytest.approx(40))
    assert 540 <= alert.step <= 561 and (recording.raw / "trigger").read_text() == "slow"
    (recording.raw / "trigger").unlink()
    recording.steps(300, 40)
    assert len(viewed(watch).alerts) == 1 and not (recording.raw / "trigger").exists()


def test_a_worse_slowdown_during_an_alert_is_another_one(recording):
    watch = watching(recording, Rule(20, 50))
    recording.steps(500, 20)
    recording.steps(60, 40)
    assert len(viewed(watch).alerts) == 1
    (recording.raw / "trigger").unlink()
    recording.steps(60, 400)
    first, second = viewed(watch).alerts
    assert second.step_ms == pytest.approx(400) and (recording.raw / "trigger").exists()
    recording.steps(200, 20)
    assert all(alert.over for alert in viewed(watch).alerts) and first.step_ms < second.step_ms


def test_steps_beside_the_bursts_of_a_timeline_raise_no_alert(recording):
    watch = watching(recording, Rule(20, 50))
    recording.steps(500, 20)
    for burst in range(2, 22, 2):  # bursts empty the device's queue, so the steps between them are longer
        recording.phase, recording.burst = "slow", burst
        recording.steps(2, 60)
        recording.phase, recording.burst = "clean", burst + 1
        recording.steps(6, 40)
    recording.steps(300, 20)
    assert viewed(watch).alerts == []
    recording.steps(60, 40)
    assert len(viewed(watch).alerts) == 1


def test_an_alert_that_was_over_before_the_watch_began_requests_nothing(recording):
    recording.steps(500, 20)
    recording.steps(60, 40)
    recording.steps(100, 20)
    watch = watching(recording, Rule(20, 50))
    [alert] = viewed(watch).alerts
    assert alert.over and alert.state == "unexplained" and not (recording.raw / "trigger").exists()


def test_without_timelines_an_alert_requests_none(tmp_path):
    recording = LiveRecording(tmp_path / "run.fathom", depth="surface")
    watch = watching(recording, Rule(20, 50))
    recording.steps(500, 20)
    recording.steps(60, 40)
    assert len(viewed(watch).alerts) == 1 and not (recording.raw / "trigger").exists()


class FakeExaminer(Examiner):
    """Gives insights that a test prepared, and keeps what was asked for."""

    def __init__(self, *insights):
        super().__init__()
        self.insights, self.asked, self.running = list(insights), [], False

    @property
    def busy(self):
        return self.running

    def _start(self, result, folder, now_s, ns):
        self.asked.append((result, ns))
        self.running = True

    def result(self, now_s):
        self.running = False
        return self.insights.pop(0)


USUAL = Insight(1, 20.0)
CAUSE = FoundCause("input-slow", "Batches are late", "Use workers", 20.0)
SLOW = Slowdown(20.0, 40.0, [moved("idle: input", "", 20_000_000)], findings=[CAUSE])


def test_the_timeline_of_an_alert_is_compared_with_the_usual_one(recording):
    examiner = FakeExaminer(USUAL, SLOW)
    watch = watching(recording, Rule(20, 50), examine=True, examiner=examiner)
    recording.steps(300, 20)
    recording.phase, recording.burst = "timeline", 2
    recording.steps(5, 22)
    recording.phase, recording.burst = "clean", 3
    recording.steps(200, 20)
    viewed(watch)
    assert viewed(watch).insight == USUAL and examiner.asked == [(Insight, 0)]
    recording.steps(60, 40)
    assert viewed(watch).alerts[0].state == "recording"
    recording.phase, recording.burst = "slow", 4
    recording.steps(5, 44)
    recording.phase, recording.burst = "clean", 5
    recording.steps(100, 40)
    before = viewed(watch)
    assert before.alerts[0].state == "examining"
    result, onset = examiner.asked[-1]
    assert result is Slowdown and BEGUN + 9 * S < onset < BEGUN + 11 * S
    after = viewed(watch)
    [alert] = after.alerts
    assert alert.state == "explained" and alert.change == SLOW and after.insight == USUAL
    assert any("idle: input" in line for line in live_events(before, after))


def test_a_failed_examination_leaves_the_cause_unknown(recording):
    watch = watching(recording, Rule(20, 50), examine=True, examiner=FakeExaminer(None))
    recording.steps(500, 20)
    recording.steps(60, 40)
    viewed(watch)
    recording.now += 400 * S  # no timeline came
    viewed(watch)
    [alert] = viewed(watch).alerts
    assert alert.state == "unexplained" and "failed" in alert.change.why_not


def test_a_slowdown_names_what_changed_beyond_noise(tmp_path):
    """A recording of an H200, and a copy in which one kernel family takes a third more."""
    original = EXAMPLES / "train_gpt-h200.fathom.zip"
    before = fathom.open(original)
    family = before.ledger.filter(entry="compute").sort("ms")["detail"][-1]
    folder = copied(original, tmp_path / "slower.fathom")
    slower(folder, 1.33, pl.col("family") == family)
    result = examining.slowdown(before, fathom.open(folder))
    assert [change.detail for change in result.entries] == [family] and result.why_not == ""
    grown = result.after_ms - result.before_ms
    assert result.entries[0].change_ms == pytest.approx(grown, rel=0.15)
    assert examining.slowdown(fathom.open(folder), before).why_not == PASSED


# examinations


def test_a_copy_has_the_ends_of_a_long_log_and_its_bursts(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(examining, "HEAD", head := 2**15)
    monkeypatch.setattr(examining, "TAIL", tail := 2**15)
    recording.say(t="loader", loader=0)
    while recording.log.stat().st_size < 3 * (head + tail):
        recording.steps(200, 1)
    recording.phase, recording.burst = "timeline", 2
    recording.steps(5, 2)
    recording.phase, recording.burst = "clean", 3
    while recording.log.stat().st_size < 6 * (head + tail):
        recording.steps(200, 1)
    copy(recording.raw, tmp_path / "copy" / "raw")
    lines = [
        json.loads(line) for line in (tmp_path / "copy/raw" / recording.log.name).read_bytes().splitlines()
    ]
    size = (tmp_path / "copy/raw" / recording.log.name).stat().st_size
    assert [line["t"] for line in lines[:3]] == ["process", "clock", "loader"]
    assert [line["phase"] for line in lines if line.get("phase") == "timeline"] == ["timeline"]
    assert lines[-1]["ns"][-1] == recording.now and size < 1.5 * (head + tail)
    assert json.loads((tmp_path / "copy/raw/end.json").read_text())["ended"] == "stopped"


def test_since_an_alert_slow_bursts_are_the_timeline(recording, tmp_path):
    recording.steps(100, 20)
    onset = recording.now
    for phase in ("clean", "slow", "clean"):
        recording.phase, recording.burst = phase, recording.burst + 1
        recording.steps(20, 40)
    copy(recording.raw, tmp_path / "since" / "raw", since_ns=onset)
    lines = [json.loads(line) for line in (tmp_path / "since/raw" / recording.log.name).open()]
    assert [line["phase"] for line in lines if line["t"] == "marks"] == ["clean", "timeline", "clean"]
    copy(recording.raw, tmp_path / "until" / "raw", until_ns=onset - 1)
    lines = [json.loads(line) for line in (tmp_path / "until/raw" / recording.log.name).open()]
    assert [len(line["ns"]) for line in lines if line["t"] == "marks"] == [101]


def test_an_examination_that_takes_too_long_or_prints_nonsense_gives_nothing(tmp_path):
    def spawn(command, **options):
        return subprocess.Popen([sys.executable, "-c", program], **options)

    examiner, program = Examiner(spawn), "import time; time.sleep(60)"
    examiner.examine(tmp_path, now_s=0.0)
    assert examiner.result(1.0) is None and examiner.busy
    assert examiner.result(1e6) is None and not examiner.busy
    program = "print('{')"
    examiner.examine(tmp_path, now_s=0.0)
    while examiner.busy:
        assert examiner.result(1.0) is None
        time.sleep(0.01)


def planted(live: Live) -> list[Alert]:
    """The explained alerts of the slow steps; a busy host may raise others before."""
    return [alert for alert in live.alerts if alert.state == "explained" and alert.step >= 1200]


@pytest.mark.programs
def test_a_program_that_becomes_slow_is_explained_while_it_runs(tmp_path):
    """A real one, without torch: its timeline has marks and sampled stacks, and ends with the recording."""
    from tests.support.running import start_fathom

    (tmp_path / "slow.py").write_text(
        "import time, fathom\n"
        "def spend(ms):\n    time.sleep(ms / 1e3)\n"
        "for i in range(100_000):\n    spend(2 if i < 1200 else 20)\n    fathom.step()\n"
    )
    words = ["run", "-q", "--raw", "--steps", "3", "-o", "out.fathom", "--", "python", "slow.py"]
    program = start_fathom(*words, cwd=tmp_path)
    try:
        folder = tmp_path / "out.fathom"
        while not (folder / "raw" / "launch.json").exists():
            time.sleep(0.05)
        watch = Watch(folder, Rule(200, 20))
        until = time.monotonic() + 300
        while not (explained := planted(live := viewed(watch))):
            assert time.monotonic() < until, live
            time.sleep(0.2)
        watch.close()
    finally:
        os.killpg(program.pid, signal.SIGTERM)
        program.communicate()
    alert = explained[-1]
    more = alert.change.after_ms - alert.change.before_ms
    host = sum(row.change_ms for row in alert.change.entries if row.entry.startswith("idle: "))
    assert more > 5 and host == pytest.approx(more, rel=0.2)
    msgspec.json.decode(msgspec.json.encode(live))


def test_views_can_be_printed_as_json():
    alert = Alert(1, 0, 5, 10.0, 20.0, change=SLOW)
    assert msgspec.json.decode(msgspec.json.encode(alert), type=Alert) == alert
