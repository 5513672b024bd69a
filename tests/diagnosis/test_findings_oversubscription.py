"""Other processes on the device, and threads beyond the cores: rules on signals made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.signals import Recorded, Signals, Stretched
from tests.support.findings_fakes import compute, idle, raised, signals


def test_kernels_that_are_held_up_whatever_they_are_share_their_device():
    ledger = [compute("a", 6.0), compute("b", 4.0)]
    findings = raised(signals(ledger, device_stretched=Stretched(4.0, 2.0, 2)), "device-other-process")
    assert findings["device-other-process"].changes == ("all-kernels=0.600000",)
    for other in (Stretched(4.0, 2.0, 1), Stretched(0.1, 2.0, 2)):
        assert raised(signals(ledger, device_stretched=other), "device-other-process") == {}


@pytest.mark.parametrize(("busy", "cores", "raises"), [(16.0, 16, True), (12.0, 16, False), (8.0, 8, False)])
def test_workers_that_keep_more_cores_busy_than_they_are_run_threads(busy, cores, raises):
    known = {"input_workers": 9, "host_busy_cores": busy, "host_cores": cores}
    findings = raised(signals([compute("a", 5.0), idle("input", 5.0)], **known), "host-cpu-oversubscription")
    assert bool(findings) == raises


@pytest.mark.parametrize(
    ("threads", "cores", "work", "raises"),
    [(6, 2, 9.0, True), (2, 2, 9.0, False), (None, 2, 9.0, False), (6, None, 9.0, False), (6, 2, 1.0, False)],
)
def test_ops_with_more_threads_than_cores_are_found_where_ops_take_time(threads, cores, work, raises):
    ledger = [LedgerRow(Entry.OPS, "aten::mm", work), idle("python", 10.0 - work)]
    given = signals(ledger, host_threads=threads, host_cores=cores)
    findings = raised(given, "host-cpu-oversubscription")
    assert bool(findings) == raises
    assert all(finding.gain_ms is None and not finding.claims for finding in findings.values())


def crowding(threads: int | None = 4, workers: int = 12, **more: Any) -> Signals:
    """A step of 10 ms, half of it waiting for workers of 16 cores that take 160 ms for a batch."""
    known = {"input_workers": workers, "input_lost_ms": 5.0, "host_cores": 16, "host_busy_cores": 10.0}
    said = {} if threads is None else {"input_threads": threads}
    stages = {"input_stages_ms": {"fetch": 160.0, "read": 1.0, "decode": 0.0}}
    return signals([compute("a", 5.0), idle("input", 5.0)], **known | said | stages | more)


CLAIMING = ("host-cpu-oversubscription", "input-slow-transform", "input-pinning")


def test_threads_of_workers_beyond_the_cores_are_what_the_step_waits_for():
    (result,) = raised(crowding(), *CLAIMING).values()
    assert result.kind == "host-cpu-oversubscription" and result.gain_ms == 5.0
    assert [(claim.entry, claim.ms) for claim in result.claims] == [("idle: input", 5.0)]
    assert (48, "threads") in [(line.value, line.unit) for line in result.evidence]
    assert not any(line.unit == "%" for line in result.evidence)


def test_waiting_for_a_processor_is_told_where_it_is_known():
    result = raised(crowding(input_cpu_wait_share=0.4), *CLAIMING)["host-cpu-oversubscription"]
    assert [line.value for line in result.evidence if line.unit == "%"] == [pytest.approx(40.0)]


def test_threads_are_at_fault_however_quick_most_batches_are():
    """Batches that take 16 ms mostly, and then a second for many in a row, keep up by their median."""
    findings = raised(crowding(input_stages_ms={"fetch": 16.0}), *CLAIMING)
    assert set(findings) == {"host-cpu-oversubscription"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (crowding(1), "input-slow-transform"),
        (crowding(None), "input-slow-transform"),
        (crowding(4, workers=4), "input-slow-transform"),  # 16 threads for 16 cores
        (crowding(input_cpu_wait_share=0.01), "input-slow-transform"),  # they do not use their threads
        (crowding(input_stages_ms={"fetch": 160.0, "decode": 120.0}), "input-slow-decode"),
        (
            crowding(input_stages_ms={"fetch": 160.0, "read": 120.0}, input_read_bytes=1e8),
            "input-storage-bound",
        ),
        (crowding(input_stages_ms={"fetch": 16.0, "pin": 9.0}), "input-pinning"),
    ],
)
def test_one_thread_or_a_free_core_is_no_oversubscription(given, kind):
    assert set(raised(given, *CLAIMING)) == {kind}


def test_workers_that_sleep_until_other_threads_are_done_do_not_read():
    stages = {"fetch": 160.0, "read": 120.0}
    findings = raised(crowding(input_stages_ms=stages, input_read_bytes=136.0), *CLAIMING)
    assert set(findings) == {"host-cpu-oversubscription"}


@pytest.mark.parametrize("given", [crowding(input_lost_ms=0.0), crowding(workers=0)])
def test_without_waits_or_workers_there_is_no_oversubscription(given):
    assert "host-cpu-oversubscription" not in raised(given, *CLAIMING)


def test_busy_cores_that_tell_of_other_libraries_leave_nothing_to_the_loader():
    findings = raised(crowding(1, workers=9, host_busy_cores=16.0), *CLAIMING)
    assert set(findings) == {"host-cpu-oversubscription"} and findings[CLAIMING[0]].confidence < 0.85


@pytest.mark.parametrize(
    ("usable", "quota", "known"), [(32, None, True), (16, None, False), (32, 8.0, False)]
)
def test_busy_cores_are_the_program_s_where_it_may_use_them_all(usable, quota, known, monkeypatch):
    from fathom.diagnosis.signals import input as loading

    monkeypatch.setattr(loading, "busy_percent", lambda _: 50.0)
    cpu = {"logical_cores": 32, "usable_cores": usable, "quota_cores": quota}
    given = Signals(None, Recorded(None, {"host": {"cpu": cpu}}, None, None))
    assert given.get("host.busy_cores").value == (16.0 if known else None)
