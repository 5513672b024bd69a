"""Batches that the loop makes itself: the gain that free cores allow, and rules that must not claim it."""

from __future__ import annotations

from typing import Any

import pytest

from fathom.analysis.results import LedgerRow
from fathom.diagnosis.engine import findings
from fathom.diagnosis.rules import NotAnalysed, rules
from fathom.diagnosis.signals import Made, Signal, Signals
from tests.support.findings_fakes import raised, signals

KIND = "input-made-in-the-loop"
LINE = "batches (data.py:5)"
OTHERS = ("input-too-few-workers", "input-slow-transform", "host-cpu-oversubscription")


def loop(made: Made | Signal, ms: float = 20.0, fed: float = 5.0, **more: Any) -> Signals:
    """A step on a CPU that makes batches for `ms` and computes for `fed`."""
    rows = [LedgerRow("ops", "aten::mm", fed), LedgerRow("idle: input", LINE, ms)]
    known: dict[str, Any] = {"step_device": "cpu", "host_cores": 8.0, "input_made": made}
    return signals(rows, **known | more)


def made(ms: float = 20.0, **more: Any) -> Made:
    return Made(ms, "/p/data.py:5", **{"threads": 1} | more)


def test_the_loop_that_makes_its_batches_is_found_at_the_line_of_the_generator():
    (candidate,) = raised(loop(made()), KIND, *OTHERS).values()
    assert (candidate.kind, candidate.source) == (KIND, "/p/data.py:5")
    assert [(claim.detail, claim.ms) for claim in candidate.claims] == [(LINE, 20.0)]
    assert candidate.gain_ms == pytest.approx(25 - 6.82, abs=0.3)
    assert "num_workers=3" in candidate.remedy or "num_workers=4" in candidate.remedy


def gain(made_now: Made, **more: Any) -> float:
    return raised(loop(made_now, **more), KIND)[KIND].gain_ms or 0.0


def test_cores_limit_the_gain():
    every = [gain(made(), host_cores=float(cores)) for cores in (16, 4, 3, 2)]
    assert every == sorted(every, reverse=True) and every[0] > every[-1]
    assert gain(made(), host_cores=2.0) == pytest.approx(25 - 12.5)  # both cores are busy all the time


def test_a_step_that_uses_all_cores_shares_them():
    shared = gain(made(threads=4), host_cores=4.0)
    assert 0 < shared < gain(made(threads=1), host_cores=4.0)
    (candidate,) = raised(loop(made(threads=4), host_cores=4.0), KIND).values()
    assert "set_num_threads" in candidate.remedy


def test_waiting_needs_no_core_and_a_thread_is_enough_if_it_keeps_up():
    short = raised(loop(made(4.0, blocked=1.0, threads=4), ms=4.0, host_cores=4.0), KIND)[KIND]
    assert "threading.Thread" in short.remedy
    assert short.gain_ms == pytest.approx(4.0)
    long = raised(loop(made(20.0, blocked=1.0, threads=4), host_cores=4.0), KIND)[KIND]
    assert "num_workers" in long.remedy and (long.gain_ms or 0) > 15


@pytest.mark.parametrize(
    ("made_now", "more", "why"),
    [
        (made(locked=0.9, blocked=0.9), {}, "other threads"),
        (made(threads=1), {"host_cores": 1.0}, "no core is left"),
    ],
)
def test_the_rule_abstains_with_a_reason(made_now, more, why):
    (look,) = [rule.look for rule in rules() if KIND in rule.kinds]
    (outcome,) = list(look(loop(made_now, **more)))
    assert isinstance(outcome, NotAnalysed) and why in outcome.why


def test_older_recordings_are_not_analysed_and_loops_without_iterators_have_no_finding():
    (rule,) = [rule for rule in rules() if KIND in rule.kinds]
    known, abstained = findings(loop(Signal(None, "", "recorded before")), [rule])
    assert not known and [each.what for each in abstained] == [f"finding {KIND}"]
    empty = signals([LedgerRow("ops", "aten::mm", 5.0)], step_device="cpu", input_made=Made(0.0, ""))
    assert findings(empty, [rule]) == ([], [])


def test_a_loader_that_waits_beside_it_keeps_its_own_rows():
    rows = [LedgerRow("ops", "aten::mm", 5.0), LedgerRow("idle: input", LINE, 20.0)]
    rows.append(LedgerRow("idle: input", "", 6.0))
    known = {"input_stages_ms": {"fetch": 80.0}, "input_workers": 2, "input_lost_ms": 6.0}
    both = signals(rows, host_cores=16.0, input_made=made(), **known)
    candidates = raised(both, KIND, "input-too-few-workers")
    assert [claim.detail for claim in candidates[KIND].claims] == [LINE]
    assert [claim.detail for claim in candidates["input-too-few-workers"].claims] == [""]


def test_workers_that_may_gain_nothing_are_not_recommended():
    (rule,) = [rule for rule in rules() if KIND in rule.kinds]
    small = loop(made(1.5), ms=1.5, host_cores=8.0, step_mean_ms=6.5)
    assert findings(small, [rule])[0] == []
    large = loop(made(20.0), ms=20.0, host_cores=8.0, step_mean_ms=25.0)
    (finding,) = findings(large, [rule])[0]
    assert 0 < finding.low_ms < finding.gain_ms < finding.high_ms
