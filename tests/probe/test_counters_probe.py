"""The phase `counters` in real programs, with a collector that emits samples by rule; bursts and budgets."""

from __future__ import annotations

import gc
import itertools
import json
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.probe.counters import budget, sampler
from fathom.probe.counters.budget import MOST_TIMES
from fathom.probe.orders import Job
from fathom.probe.phases import RECENT, RECOVERY, Phases
from fathom.probe.plan import ProbePlan
from fathom.sounding import import_raw
from tests.probe.test_probe_phases import MS, Program
from tests.support.counters_fakes import FakeCollector, value
from tests.support.probe_programs import Run, launch

GROUPS = [["sm__a", "sm__b", "sm__c"], ["sm__a", "sm__d"]]
COUNTERS = {"groups": GROUPS, "interval_ns": 20_000, "trigger": "time", "rounds": 2, "steps": 3}


def counted(folder: Path, what: str, steps: int = 90, **plan: Any) -> Run:
    options = {"counters": COUNTERS, "steps": 4, "settle": 4, **plan}
    return launch(folder, "counted.py", what, str(steps), plan=options)


def columns(run: Run, record: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
    data, count = (run.raw / record["file"]).read_bytes(), record["completed"]
    width = len(record["names"])
    stamps = struct.unpack(f"<{2 * count}Q", data[: 16 * count])
    return (
        list(stamps[:count]),
        list(stamps[count:]),
        list(struct.unpack(f"<{width * count}f", data[16 * count :])),
    )


# the phases


def test_counters_come_between_attribution_and_memory_and_groups_take_turns():
    program = Program(ProbePlan(counters=COUNTERS), memory=True).run(200, 1 * MS)
    order = [job.phase for job, *_ in program.done]
    assert order[order.index("attribution") :] == ["attribution", *["counters"] * 4, "memory"]
    bursts = [job for job, *_ in program.done if job.phase == "counters"]
    assert [job.group for job in bursts] == [0, 1, 0, 1]
    assert [job.last for job in bursts] == [False, False, False, True]
    for job, first, end in program.done:
        assert end - first == job.windows
    ends = [end for _, _, end in program.done]
    for (job, first, _), before in zip(program.done[1:], ends, strict=False):
        if job.phase == "counters":  # decoding takes long, and steps after it are not like others
            assert first - before > RECOVERY
    assert Counter(program.labels)["counters"] == sum(job.windows for job in bursts)


@pytest.mark.parametrize(("depth", "bursts"), [("auto", 4), ("counters", 4), ("timeline", 0), ("surface", 0)])
def test_depth_decides_about_counters(depth, bursts):
    done = Program(ProbePlan(depth=depth, counters=COUNTERS)).run(200).done
    assert sum(job.phase == "counters" for job, *_ in done) == bursts


def test_without_groups_nothing_is_sampled():
    assert not any(job.phase == "counters" for job, *_ in Program(ProbePlan(depth="counters")).run(200).done)


@given(
    st.floats(1e3, 1e11),
    st.sampled_from([10_000, 20_000, 50_000]),
    st.lists(st.integers(1, 500), min_size=1, max_size=6),
)
def test_a_burst_never_holds_more_than_an_image(step_ns, interval, sizes):
    groups = [["a"] * size for size in sizes]
    wanted = {"interval_ns": interval, "rounds": 3}
    jobs = [budget.fitted(job, step_ns, groups, wanted) for job in budget.jobs(groups, wanted)]
    assert [job.group for job in jobs] == [*range(len(groups))] * 3
    for job in jobs:
        assert 1 <= job.windows <= budget.MOST_STEPS
        assert job.windows * round(step_ns) / job.interval_ns <= budget.samples(sizes[job.group])
        assert job.interval_ns >= interval
        assert job.interval_ns == interval or job.windows == 1


@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=4),
    st.floats(0, 1),
    st.floats(1e5, 1e8),
    st.none() | st.integers(1, 40_000),
    st.randoms(),
)
def test_bursts_go_on_until_they_showed_enough_of_the_device_at_work(sizes, busy, step_ns, asked, random):
    wanted = {"samples": asked} if asked else {}
    groups = [["a"] * size for size in sizes]
    planned = [budget.fitted(job, step_ns, groups, wanted) for job in budget.jobs(groups, wanted)]
    for group, count in Counter(job.group for job in planned).items():
        each = budget.samples(sizes[group])
        assert (count - 1) * each < (asked or budget.ENOUGH_SAMPLES) <= count * each
    tally, queue, active, done = budget.Tally(planned, wanted), list(planned), Counter(), Counter()
    while queue:
        job = queue.pop(0)
        shown = busy * random.random() * budget.samples(sizes[job.group])
        active[job.group] += shown
        done[job.group] += 1
        if tally.again(job, shown):
            queue.insert(0, job)
    for group, count in Counter(job.group for job in planned).items():
        most = done[group] == budget.MOST_TIMES * count
        assert count <= done[group] <= budget.MOST_TIMES * count
        share = (asked or budget.ENOUGH_SAMPLES) / budget.ENOUGH_SAMPLES
        assert active[group] >= share * budget.ENOUGH_ACTIVE or most


def timed_bursts(program: Program) -> list[tuple[Job, int, int]]:
    return [item for item in program.done if item[0].phase == "counters"]


@pytest.mark.parametrize(("before_ms", "then_ms"), [(90, 12), (12, 90), (12, 700)])
def test_bursts_hold_as_many_steps_as_fit_now(before_ms, then_ms):
    """160 ms of so few counters fit. On a host that others use steps differ fivefold."""
    program = Program(ProbePlan(counters=COUNTERS | {"rounds": 9, "steps": None}))
    while len(timed_bursts(program)) < 3:
        program.step(before_ms * MS)
    program.run(600, then_ms * MS)
    jobs = [job for job, *_ in timed_bursts(program)]
    assert jobs[1].windows == 160 // before_ms
    late = jobs[3 + RECENT :]  # the third may have begun with longer steps, and a fourth was armed
    assert {job.windows for job in late} == {max(160 // then_ms, 1)}
    assert all(job.windows * then_ms * MS <= 8000 * job.interval_ns for job in late)
    assert all(job.interval_ns == 20_000 for job in late) == (then_ms <= 160)


def test_groups_take_turns_until_all_showed_enough():
    """No burst shows anything of the device at work, so each group gets as many as it may."""
    program = Program(ProbePlan(counters={"groups": GROUPS, "samples": 16_000}), memory=True).run(2000)
    jobs = [job for job, *_ in timed_bursts(program)]
    assert Counter(job.group for job in jobs) == {0: 2 * MOST_TIMES, 1: 2 * MOST_TIMES}
    assert all(item.group != other.group for item, other in itertools.pairwise(jobs))
    assert [job.last for job in jobs] == [False] * (len(jobs) - 1) + [True]
    assert program.done[-1][0].phase == "memory"


def test_where_counters_cannot_be_sampled_the_other_phases_go_on():
    phases = Phases(ProbePlan(counters=COUNTERS), memory=True)
    for k in range(120):
        orders = phases.at(k, k * MS)
        if orders.stop is not None:
            orders = phases.stopped(1000)
        if orders.arm is not None and orders.arm.phase == "counters":
            phases.without_counters()
            phases.interrupted()
        elif orders.arm is not None and orders.arm.phase == "memory":
            break
        assert orders.phase != "counters"
    else:
        pytest.fail("the memory phase never came")


def test_other_ranks_learn_the_group(tmp_path, monkeypatch):
    from fathom.probe.orders import Schedule

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    job = Job("counters", 3, group=1, interval_ns=40_000, last=True)
    Schedule(str(tmp_path)).publish({7: job})
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Schedule(str(tmp_path)).news() == {7: job}


# in a program


@pytest.mark.programs
def test_bursts_leave_matching_records_files_and_traces(tmp_path):
    run = counted(tmp_path, "ticks")
    assert run.status == 0
    records = run.of("samples")
    groups = [record["group"] for record in records]
    assert groups[:4] == [0, 1, 0, 1]
    phase = {(mark["phase"], mark["burst"]): mark for mark in run.marks}
    traces = {record["burst"]: record for record in run.of("trace")}
    for number, record in enumerate(records):
        assert record["names"] == GROUPS[record["group"]] and record["interval_ns"] == 20_000
        assert ("counters", record["burst"]) in phase
        trace = traces[record["burst"]]
        assert (trace["phase"], trace["k0"], trace["k1"]) == ("counters", record["k0"], record["k1"])
        assert record["populated"] == (count := record["completed"]) > 0 and not record["overflow"]
        starts, ends, values = columns(run, record)
        assert all(abs(end - start - 42_000) <= 1 for start, end in zip(starts, ends, strict=True))
        assert record["start_ns"][0] <= record["start_ns"][1] <= record["stop_ns"][0] <= record["stop_ns"][1]
        width = len(record["names"])
        assert values == [value(number, sample, at) for sample in range(count) for at in range(width)]
    calls = run.err.splitlines()[-1].split()
    assert calls[:17] == ["open", *["configure", "start", "stop", "chunks"] * 4] and calls[-1] == "close"
    labels = {mark["k"]: mark["phase"] for mark in run.marks}
    assert {labels[record["k1"]] for record in records} == {"transition"}  # decoding is in no clean step
    _sounding_has_them(run, records)


def _sounding_has_them(run: Run, records: list[dict[str, Any]]) -> None:
    store = import_raw(run.folder)
    samples, [rank] = store.table("samples").collect(), store.manifest.ranks
    bursts = rank.facts["sampling"]
    assert len(samples) == sum(record["completed"] for record in records)
    assert rank.facts["counter_groups"] == GROUPS
    assert {burst["clock"] for burst in bursts} == {"ticks"} and store.manifest.problems == []
    anchors = {record["burst"]: record["start_ns"] for record in records}
    for (burst,), own in samples.group_by("burst"):
        first: Any = own["start_ns"].min()
        assert abs(first - anchors[burst][0]) < 1e6


@pytest.mark.programs
def test_a_failing_collector_costs_the_counters_alone(tmp_path):
    run = counted(tmp_path, "breaks")
    words = "sampling failed (RuntimeError: odd)"
    assert run.status == 0 and run.out.startswith("loss")
    warnings = [line for line in run.err.splitlines() if line.startswith("fathom:")]
    assert len(warnings) == 1 and words in warnings[0]
    assert run.of("samples") == [] and not list(run.raw.glob("samples-*"))
    assert run.phases["timeline"] >= 4 and run.phases["attribution"] >= 1 and run.phases["clean"] >= 12
    assert run.err.splitlines()[-1].split()[-1] == "close"
    store = import_raw(run.folder)
    assert [absence["what"] for absence in store.manifest.abstained if words in absence["why"]] == [
        "counters"
    ]
    assert store.manifest.problems == []


# one burst after the other


def session(folder: Path, said: list[Any], **torch: Any) -> Any:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    fake = SimpleNamespace(cuda=cuda, **torch)
    notes = said if torch else []

    def note(what: str, text: str) -> None:
        notes.append((what, text))

    return SimpleNamespace(
        raw=str(folder), plan=ProbePlan(counters=COUNTERS), torch=fake, say=said.append, note=note
    )


def burst(ours: sampler.CounterSampler, number: int = 1, last: bool = False) -> bool:
    armed = ours.arm(Job("counters", 1, group=number % 2, interval_ns=20_000, last=last))
    ours.start()
    ours.stop()
    ours.save(number, number, number + 1)
    return armed


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeCollector) -> None:
    monkeypatch.setattr(sampler, "make", lambda torch: fake)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("open", PermissionError("no"), "NVreg_RestrictProfilingToAdminUsers=0"),
        ("open", RuntimeError("PM sampling is already enabled on this device."), "another profiler"),
        ("configure", ValueError("one pass"), "machine measure --only counters"),
        ("start", RuntimeError("odd"), "RuntimeError: odd"),
        ("stop", RuntimeError("odd"), "RuntimeError: odd"),
        ("chunks", OSError("odd"), "OSError: odd"),
        ("close", OSError("odd"), "OSError: odd"),
    ],
)
def test_any_failure_is_reported_once_and_ends_sampling(tmp_path, monkeypatch, capsys, call, error, words):
    fake, said = FakeCollector(fails={call: error}), []
    use(monkeypatch, fake)
    ours = sampler.CounterSampler(session(tmp_path, said, version=None))
    burst(ours, last=True)
    assert ours.off and not burst(ours)
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith("fathom: no hardware counters: ") and words in warning
    notes = [item for item in said if isinstance(item, tuple)]
    assert len(notes) == 1 and notes[0][0] == "counters" and words in notes[0][1]
    assert fake.calls[-1] == ("close",) or call == "open"
    assert list(tmp_path.iterdir()) == [] or call == "close"


def test_an_overflow_is_reported_and_the_next_burst_samples_less_often(tmp_path, monkeypatch):
    use(monkeypatch, FakeCollector(overflows=1))
    said: list[Any] = []
    ours = sampler.CounterSampler(session(tmp_path, said))
    assert burst(ours, 1) and burst(ours, 2) and not ours.off
    assert [(item["overflow"], item["completed"], item["interval_ns"]) for item in said] == [
        (True, 0, 20_000),
        (False, 100, 40_000),
    ]


def test_a_delayed_burst_does_not_reduce_the_sampling_rate(tmp_path, monkeypatch):
    """A shared host pauses for 0.7 s now and then."""
    use(monkeypatch, FakeCollector(overflows=1))
    monkeypatch.setattr(sampler.budget, "samples", lambda counters: 0)
    said: list[Any] = []
    ours = sampler.CounterSampler(session(tmp_path, said))
    assert burst(ours, 1) and burst(ours, 2)
    assert [(item["overflow"], item["interval_ns"]) for item in said] == [(True, 20_000), (False, 20_000)]


@pytest.mark.parametrize(
    ("cuda", "installed", "words"),
    [
        ("12.8", "13.4.0", "CUDA 12.8"),
        (None, None, "without CUDA"),
        ("13.0", None, "pip install"),
        ("13.0", "13.4.0", "did not use CUDA"),
    ],
)
def test_a_software_stack_without_pm_sampling_is_reported_before_trying(
    tmp_path, monkeypatch, cuda, installed, words
):
    monkeypatch.setattr(sampler.reasons, "installed", lambda: installed)
    said: list[Any] = []
    ours = sampler.CounterSampler(session(tmp_path, said, version=SimpleNamespace(cuda=cuda)))
    assert not burst(ours) and ours.off
    assert [what for what, text in said if words in text] == ["counters"]


# nothing piles up


def test_memory_is_flat_over_many_bursts(tmp_path, monkeypatch):
    fake, said = FakeCollector(samples=2000, chunk=500), []
    use(monkeypatch, fake)
    ours = sampler.CounterSampler(session(tmp_path, said))

    def bursts(count: int) -> tuple[int, int]:
        for number in range(count):
            assert burst(ours, number)
            said.clear()
            fake.calls.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], len(gc.get_objects())

    tracemalloc.start()
    try:
        values, objects = bursts(5)
        after, more = bursts(40)
    finally:
        tracemalloc.stop()
    one_burst = 2000 * (16 + 4 * 3)
    assert after - values < one_burst and more - objects < 500
    assert not ours.off


def test_the_buffer_is_given_back_after_the_last_burst(tmp_path, monkeypatch):
    fake, said = FakeCollector(), []
    use(monkeypatch, fake)
    ours = sampler.CounterSampler(session(tmp_path, said))
    assert burst(ours) and burst(ours, last=True)
    assert [name for name, *_ in fake.calls].count("open") == 1 and fake.calls[-1] == ("close",)
    assert json.loads(json.dumps(said[0]))["group"] == 1


def test_a_full_disk_costs_the_counters_alone(tmp_path, monkeypatch, capsys):
    use(monkeypatch, FakeCollector())
    ours = sampler.CounterSampler(session(tmp_path / "gone", []))
    assert burst(ours) and ours.off and not burst(ours)
    assert capsys.readouterr().err.count("fathom:") == 1
