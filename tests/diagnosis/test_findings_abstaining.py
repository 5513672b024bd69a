"""A rule that lacks a signal or a measure abstains, with a reason that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module

import pytest

from fathom.analysis.results import Abstained
from fathom.diagnosis.engine.findings import _looked, findings
from fathom.diagnosis.rules import Candidate, needs, rules
from fathom.diagnosis.rules.kernels.measures import ROWS
from fathom.diagnosis.rules.kernels.sampled import SAMPLED_NEEDS
from fathom.diagnosis.signals import Family, Signal, Signals
from fathom.diagnosis.signals.value import READERS
from fathom.sounding import open_store
from faults.examined import KEPT
from faults.kept import archives, unpacked
from faults.labels import programs
from tests.diagnosis.test_findings_kernels import MEASURES, QUEUE, WELL
from tests.support.findings_fakes import compute, signals

EXAMINING = import_module("fathom.diagnosis.examine")  # its package has a function of that name
RANKS = import_module("fathom.diagnosis.ranks")
SAMPLED = {  # known only from samples, for kernels without a fault
    "received_use": 90.0,
    "dram": 40.0,
    "dram_read": 20.0,
    "dram_write": 20.0,
    "dram_bytes": 1e6,
    "shared_per_block": 0.0,
    "shared_per_instruction": 0.1,
    "l1_hit": 20.0,
    "issue": 30.0,
}

ALWAYS = {"step.device"}  # known of every step
ASKS_MORE = {"host-cpu-oversubscription"}  # without workers it asks for cores, and gives their reason
KNOWN = {"device_allocated_bytes": 1e9, "device_gpu": {"l2_bytes": 50_000_000}}


def kinds_without(measures: dict[str, float], *kinds: str) -> dict[str, str]:
    """By kind, why the rules of these kinds did not look at a family with these measures alone."""
    family = Family("mine", 8.0, "latency", 0.5, measures)
    given = signals([compute("mine", 10.0)], kernels_counted=[family], kernels_work=[], **KNOWN)
    mine = [rule for rule in rules() if set(rule.kinds) & set(kinds)]
    result, abstained = _looked(given, mine)
    assert not {item.kind for item in result} & set(kinds)
    return by_kind(abstained)


def by_kind(abstained: list[Abstained]) -> dict[str, str]:
    return {absence.what.removeprefix("finding "): absence.why for absence in abstained}


@pytest.mark.parametrize("kind", MEASURES)
def test_a_kind_whose_measures_are_absent_is_not_looked_for(kind):
    assert kind not in kinds_without(WELL | SAMPLED, kind)
    needed = ROWS[kind]
    gone = {
        name
        for name in WELL | SAMPLED
        for row in needed
        if name.startswith(row.measure) or name in SAMPLED_NEEDS.get(kind, ())[:1]
    }
    left = {name: value for name, value in (WELL | SAMPLED).items() if name not in gone}
    why = kinds_without(left, kind)[kind]
    for row in needed:
        assert row.measure.rstrip("_") in why


@pytest.mark.parametrize("kind", MEASURES)
def test_one_family_with_the_measures_is_enough_where_it_takes_most_of_the_time(kind):
    given = [Family("large", 6.0, "", None, WELL | SAMPLED), Family("other", 2.0, "", None, {})]
    ledger = [compute("large", 6.0), compute("other", 2.0)]
    _, abstained = findings(signals(ledger, kernels_counted=given, **KNOWN))
    assert kind not in by_kind(abstained)
    _, abstained = findings(signals(ledger, kernels_counted=given[1:], **KNOWN))
    assert kind in by_kind(abstained)


@pytest.mark.parametrize("name", QUEUE)
def test_without_a_counter_of_the_way_to_l2_contention_is_not_looked_for(name):
    well = {"occupancy": 96.0, "l1_to_l2": 50.0, "l1_from_l2": 50.0}
    assert "kernels-atomics" not in kinds_without(well, "kernels-atomics")
    why = kinds_without({key: well[key] for key in well if key != name}, "kernels-atomics")
    assert name in why["kernels-atomics"]


def test_without_counters_at_all_what_they_tell_is_not_looked_for():
    _, abstained = findings(signals([compute("mine", 10.0)], kernels_work=[]))
    assert {*MEASURES, "kernels-atomics", "kernels-l2-thrash"} <= by_kind(abstained).keys()


def recordings() -> set[str]:
    """One faulty recording for each kind that the suite expects first, the most severe that is kept."""
    kept = json.loads((KEPT / "index.json").read_text())
    result: dict[str, str] = {}
    for program in programs():
        mine = sorted(name for name in kept if name.startswith(f"{program.id.replace('/', '.')}.faulty."))
        for kind in program.fault.expected[:1] if mine else ():
            result.setdefault(kind, mine[-1])
    return set(result.values())


def signals_of(folder, monkeypatch) -> Signals:
    """The signals that an examination reads."""
    kept: list[Signals] = []

    def keeping(given: Signals) -> tuple[list, list]:
        kept.append(given)
        return [], []

    monkeypatch.setattr(RANKS, "findings", keeping)
    EXAMINING.examine(open_store(folder))
    return kept[0]


class Shared(Signals):
    """Signals that were read once for all rules; what a rule has asked for is known of each."""

    def __init__(self, source: Signals, known: dict[str, Signal] | None = None) -> None:
        super().__init__(known, source._recorded)
        self.source = source

    def _read(self, name: str) -> Signal:
        return self.source.get(name)

    def without(self, name: str) -> Shared:
        absent = Signal(None, "", f"{name} was not recorded")
        return Shared(self.source, self._signals | {name: absent})


def silent(given: Signals) -> Iterator[str]:
    """Rules that show a kind, and without one of their signals neither show it nor say that it is absent."""
    source = Signals(None, given._recorded)
    for rule in rules():
        fresh = Shared(source)
        shown = {item.kind for item in _looked(fresh, [rule])[0]}
        for name in sorted(fresh._signals.keys() - ALWAYS) if shown else ():
            result, abstained = _looked(fresh.without(name), [rule])
            assert all(isinstance(item, Candidate) for item in result)
            why = by_kind(abstained)
            for kind in shown - {item.kind for item in result}:
                if name not in why.get(kind, "") and not (kind in ASKS_MORE and kind in why):
                    yield f"{kind} without {name}: {why.get(kind, 'nothing')}"


@pytest.mark.parametrize("archive", archives(KEPT), ids=lambda archive: archive.name.split(".tar")[0])
def test_a_rule_without_one_of_its_signals_says_so_or_needs_it_not(archive, monkeypatch):
    wanted = recordings()
    failed = []
    with unpacked(archive) as soundings:
        for folder in soundings:
            if folder.name in wanted:
                failed += [f"{folder.name}: {item}" for item in silent(signals_of(folder, monkeypatch))]
    assert not failed


def test_needs_are_of_kinds_that_rules_look_for_and_of_signals_that_there_are():
    assert needs().keys() <= {kind for rule in rules() for kind in rule.kinds}
    assert {name for names in needs().values() for name in names} <= READERS.keys()
