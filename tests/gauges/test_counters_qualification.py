"""Which counters stream: bisection against chips whose missing units are known, and what is remembered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.gauges.counters import NoCountersError, keep_counters, needed, parent, prevented, qualify
from fathom.gauges.counters.bisection import fill
from fathom.gauges.counters.bisection import qualify as sort_out
from fathom.gauges.counters.chip import CuptiChip
from fathom.gauges.counters.wanted import anchors, candidates, counter, of_chip, rolled, table
from fathom.gauges.keeping import keep
from fathom.machine import counters_of, known_machine, remembered, why_no_counters
from fathom.probe.counters import reasons
from tests.support.counters_fakes import FakeChip

UNITS = "ABCDEFG"


@st.composite
def chips(draw: Any) -> tuple[FakeChip, list[str]]:
    sizes = draw(st.dictionaries(st.sampled_from(UNITS), st.integers(1, 12), min_size=1))
    names = [f"{unit}.{number}" for unit, size in sizes.items() for number in range(size)]
    chip = FakeChip(
        {unit: draw(st.integers(1, 14)) for unit in sizes},
        draw(st.sets(st.sampled_from(sorted(sizes)))),
        draw(st.dictionaries(st.sampled_from(names), st.integers(2, 4), max_size=3)),
        draw(st.sets(st.sampled_from(names), max_size=3)),
    )
    return chip, draw(st.permutations(names))


@given(chips(), st.data())
def test_streaming_counters_are_found_whatever_is_missing(
    made: tuple[FakeChip, list[str]], data: Any
) -> None:
    chip, names = made
    anchor = data.draw(st.sampled_from(names))
    good = {
        name
        for name in names
        if name[0] not in chip.missing and name not in chip.unknown and name not in chip.passes_alone
    }
    result = sort_out(names, chip, [anchor])
    grouped = {name for group in result.groups for name in group}
    full = {name for name, why in result.refused.items() if "fit" in why}
    assert grouped | full == good and not grouped & set(result.refused)
    assert set(result.refused) == set(names) - good | full and all(result.refused.values())
    assert all(chip.passes([anchor, name]) > 1 for name in full)  # nothing is refused that could be sampled
    for group in result.groups:
        assert chip.passes(group) == 1 and chip.completes(group)
        assert group[0] == anchor or anchor not in good
    rest = [name for group in result.groups for name in group if name != anchor]
    assert len(rest) == len(set(rest))


def test_bisection_samples_far_less_than_once_a_counter() -> None:
    chip = FakeChip(dict.fromkeys(UNITS, 100), {"C"})
    names = [f"{unit}.{number}" for unit in UNITS for number in range(30)]
    names = [name for name in names if name[0] != "C" or name == "C.7"]
    result = sort_out(names, chip, ["A.0"])
    assert list(result.refused) == ["C.7"] and len(result.groups) == 1
    assert chip.sampled <= 20


def test_groups_are_filled_greedily_in_order() -> None:
    chip = FakeChip({"A": 3, "B": 1})
    names = ["A.0", "B.0", "B.1", "A.1", "A.2", "A.3"]
    assert fill([], names, chip) == (["A.0", "B.0", "A.1", "A.2"], ["B.1", "A.3"])


def test_if_nothing_streams_every_counter_has_a_reason() -> None:
    result = sort_out(["A.0", "A.1"], FakeChip({"A": 2}, {"A"}), ["A.0"])
    assert result.groups == [] and set(result.refused) == {"A.0", "A.1"}


# candidates


def test_the_seeded_names_are_those_that_were_measured() -> None:
    names = of_chip("9.0")
    assert len(names) == len(set(names)) == 131
    assert "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed" in names
    assert "TriageCompute.sm__throughput.avg.pct_of_peak_sustained_elapsed" in names
    assert "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.ratio" in names
    assert set(table()["chips"]) == {"8.0", "8.6", "8.9", "9.0", "10.0"}


def test_bare_names_replace_missing_prefixed_names() -> None:
    hopper, unknown = candidates([], "9.0"), candidates([], "99.9")
    assert rolled("sm__cycles_active") in unknown and rolled("sm__cycles_active") not in hopper
    own = ["X.Set.sm__cycles_active.avg"]
    assert candidates(own, "99.9")[0] == own[0]
    assert sum(counter(name) == "sm__cycles_active" for name in candidates(own, "99.9")) == 1
    assert counter(anchors(hopper)[0]) == "sm__cycles_active"


# the parent


class FakeChild:
    def __init__(self, record: dict[str, Any] | Exception | None) -> None:
        self.record = record

    def __enter__(self) -> FakeChild:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def next(self, patience_s: float) -> dict[str, Any] | None:
        if isinstance(self.record, Exception):
            raise self.record
        return self.record

    def ending(self) -> str:
        return "its process was killed by SIGSEGV"


def machine(**more: Any) -> dict[str, Any]:
    gpu = {"index": 0, "uuid": "GPU-1", "compute_capability": "9.0", "mig": False, **more}
    return {"fingerprint": "f" * 16, "gpus": [gpu], "why_no_gpu": None, "versions": {"driver": "580"}}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "installed", lambda: "13.4.0")
    monkeypatch.setattr("fathom.machine.counters.may_count", lambda root: None)


QUALIFIED = {"groups": [["a", "b"]], "refused": {"c": "no"}, "interval_ns": 20_000, "trigger": "time"}


def test_qualified_counters_are_stored_and_reused(tmp_path: Any) -> None:
    asked = []

    def start(job: str, environment: Any) -> Any:
        asked.append((json.loads(job), environment))
        return FakeChild({"counters": QUALIFIED})

    here = machine()
    assert needed(here)
    result = qualify(here, force=True, devices=(0,), start=start)
    assert asked == [({"interval_ns": 20_000, "capability": "9.0"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"})]
    kept, place = keep_counters(here, result, tmp_path)
    assert place.is_file() and not needed(kept) and counters_of(kept) == result
    again = known_machine(lambda: dict(here), tmp_path)
    assert counters_of(again) == result and result["driver"] == "580" and result["measured_ns"] > 0
    keep(here, [], [], tmp_path)  # measuring ceilings forgets nothing
    assert remembered("f" * 16, tmp_path)["counters"] == result  # type: ignore[index]


@pytest.mark.parametrize("driver", ["590", None])
def test_another_driver_has_them_qualified_anew(driver: str | None) -> None:
    here = machine() | {"counters": {**QUALIFIED, "driver": "580"}, "versions": {"driver": driver}}
    assert counters_of(here) is None and needed(here)


@pytest.mark.parametrize(
    "damage", [None, [], "x", {"groups": []}, {"groups": [[]]}, {"groups": [[1]]}, {"interval_ns": None}]
)
def test_damaged_memories_count_for_nothing(damage: Any) -> None:
    counters = {**QUALIFIED, "driver": "580", **damage} if isinstance(damage, dict) else damage
    assert counters_of(machine() | {"counters": counters}) is None


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"why": "a reason"}, "a reason"),
        (None, "SIGSEGV"),
        ({"counters": 7}, "damaged"),
        (TimeoutError(), "longer than"),
    ],
)
def test_a_failed_qualification_is_one_sentence(record: Any, words: str) -> None:
    with pytest.raises(NoCountersError, match=words):
        qualify(machine(), force=True, devices=(0,), start=lambda *_: FakeChild(record))  # type: ignore[arg-type,return-value]


def test_reasons_against_counters_are_given_before_starting_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> Any:
        raise AssertionError

    for here in (machine() | {"gpus": []}, machine(mig=True)):
        assert why_no_counters(here) == prevented(here)
        with pytest.raises(NoCountersError):
            qualify(here, force=True, devices=(0,), start=start)
    monkeypatch.setattr(parent, "installed", lambda: None)
    with pytest.raises(NoCountersError, match="pip install"):
        qualify(machine(), force=True, devices=(0,), start=start)


# the chip, over a stand-in for cupti-python


class Host:
    open = 0

    def __init__(self, chip: str, kind: int) -> None:
        assert (chip, kind) == ("GH100", 3)

    def initialize(self) -> None:
        Host.open += 1

    def deinitialize(self) -> None:
        Host.open -= 1

    def create_config_image(self, metrics: list[str]) -> list[str]:
        if "wrong" in metrics:
            raise ValueError(metrics)
        return metrics


class Library:
    """`cupti.profiler_host`; with `sets` None its libcupti is too old to list them."""

    ProfilerHost, get_num_of_passes = Host, staticmethod(len)
    ProfilerType = SimpleNamespace(PM_SAMPLING=3)

    def __init__(self, sets: dict[str, list[str]] | None = None) -> None:
        self.sets = sets

    def get_single_pass_sets(self, chip: str) -> list[str]:
        return list(self.sets or ["TriageCompute"])

    def get_metrics_in_single_pass_set(self, chip: str, name: str) -> list[str]:
        if self.sets is None:
            raise RuntimeError("function cuptiProfilerHostGetMetricsInSinglePassSet is not found")
        return self.sets[name]


def chip(sets: dict[str, list[str]] | None = None) -> CuptiChip:
    made = object.__new__(CuptiChip)
    made.name, made._host, made._interval, made.trigger = "GH100", Library(sets), 20_000, "time"
    return made


def test_passes_are_asked_of_a_fresh_host_each_time() -> None:
    assert chip().passes(["a"]) == 1 and chip().passes(["a", "b"]) == 2
    assert chip().passes(["wrong"]) == 0 and chip().passes(["a", "wrong"]) == 2
    assert Host.open == 0


def test_a_libcupti_that_cannot_list_its_set_leaves_the_known_names() -> None:
    assert chip().own() == []
    assert chip({"TriageCompute": ["a"], "Other": ["b"]}).own() == ["a"]
    assert chip({"NewCompute": ["a"], "Graphics": ["b"]}).own() == ["a"]


def test_chips_without_time_intervals_use_cycles() -> None:
    def configure(names: list[str], interval: int, trigger: str) -> None:
        if trigger == "time":
            raise ValueError("TriggerMode.GPU_TIME_INTERVAL is not supported")

    made = chip()
    made._collector = SimpleNamespace(configure=configure)  # type: ignore[assignment]
    made.settle_trigger(["sm__cycles_active"])
    assert made.trigger == "clock"


def test_the_extra_requires_the_checked_versions() -> None:
    assert reasons.why_not("13.0", f"{reasons.OLDEST[0]}.{reasons.OLDEST[1]}.0") is None
