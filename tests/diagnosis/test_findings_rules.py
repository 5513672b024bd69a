"""Every rule on signals that must raise it, and on those that must not."""

from __future__ import annotations

import math
from itertools import chain

import msgspec
import pytest

from fathom.analysis.results import LedgerRow
from fathom.diagnosis import profiled
from fathom.diagnosis.engine import findings
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.rules import rules
from fathom.diagnosis.rules.host import syncs
from fathom.diagnosis.rules.kernels import measures, patterns
from fathom.diagnosis.signals import Call, Sensors, Signals, UnknownSignalError
from tests.support.findings_fakes import compute, idle, raised, signals

GPU = {
    "sm_clock_max_mhz": 1980,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
}


def test_rules_name_kinds_of_the_catalogue_and_no_kind_has_two_rules():
    named = [kind for rule in rules() for kind in rule.kinds]
    assert set(named) <= set(kinds())
    assert len(named) == len(set(named))


ROWS = [table.values() for table in (patterns.ROWS, syncs.ROWS, profiled.ROWS)]


@pytest.mark.parametrize("table", [chain.from_iterable(measures.ROWS.values()), *ROWS])
def test_a_row_with_a_misspelt_key_is_refused(table):
    first = next(iter(table))
    row = msgspec.to_builtins(first)
    assert msgspec.convert(row, type(first)) == first
    with pytest.raises(msgspec.ValidationError, match="unknown field `saysd`"):
        msgspec.convert(row | {"saysd": "a cause"}, type(first))


def test_a_row_of_measures_has_one_threshold():
    for row in chain.from_iterable(measures.ROWS.values()):
        assert (row.below is None) == math.isfinite(row.above), row


def test_a_device_that_waits_for_launches_is_launch_bound():
    result = raised(
        signals(
            [compute("a", 4.0), idle("dispatching", 3.0), idle("launch latency", 2.0), idle("python", 1.0)]
        ),
        "host-launch-bound",
    )
    assert set(result) == {"host-launch-bound"}
    assert any("launched" in line.text and line.value == 500 for line in result["host-launch-bound"].evidence)


def test_python_that_dominates_is_named_instead():
    ledger = [compute("a", 4.0), idle("dispatching", 1.0), idle("python", 5.0)]
    result = raised(signals(ledger, device_short_pauses_ms=1.0), "host-python")
    assert set(result) == {"host-python"}


@pytest.mark.parametrize(
    "given",
    [
        signals([compute("a", 9.5), idle("dispatching", 0.5)]),
        signals([compute("a", 4.0), idle("dispatching", 6.0)], device_short_pauses_ms=0.5),
        signals([compute("a", 4.0), idle("synchronisation", 6.0)]),
    ],
)
def test_a_busy_device_or_few_long_pauses_are_not_launch_bound(given):
    assert raised(given, "host-launch-bound") == {}


SYNCS = {
    "host-sync-item": Call(
        "cudaStreamSynchronize", "synchronisation", 1.0, 2, ("aten::item", "aten::_local_scalar_dense")
    ),
    "host-sync-copy": Call(
        "cudaStreamSynchronize",
        "synchronisation",
        1.0,
        1,
        ("aten::to", "aten::copy_"),
        copies="DtoH pageable",
    ),
    "host-sync-nonzero": Call("cudaStreamSynchronize", "synchronisation", 1.0, 1, ("aten::nonzero",)),
    "host-sync-boolean-index": Call(
        "cudaStreamSynchronize", "synchronisation", 1.0, 1, ("aten::index", "aten::nonzero")
    ),
    "host-sync-explicit": Call("cudaDeviceSynchronize", "synchronisation", 1.0, 1),
    "input-synchronous-copy": Call(
        "cudaStreamSynchronize", "synchronisation", 1.0, 1, ("aten::copy_",), copies="HtoD pinned"
    ),
}


@pytest.mark.parametrize("kind", SYNCS)
def test_a_synchronisation_is_told_by_its_op(kind):
    ledger = [compute("a", 8.0), idle("synchronisation", 2.0)]
    assert set(raised(signals(ledger, host_calls=[SYNCS[kind]]), kind)) == {kind}


def test_synchronisations_share_what_is_idle_by_how_long_they_wait():
    calls = [SYNCS["host-sync-item"], Call("cudaDeviceSynchronize", "synchronisation", 3.0, 1)]
    result = raised(signals([idle("synchronisation", 4.0)], host_calls=calls), "host-sync-item")
    assert {kind: item.claims[0].ms for kind, item in result.items()} == {
        "host-sync-item": 1.0,
        "host-sync-explicit": 3.0,
    }


def test_printing_is_told_from_reading_a_value():
    item, masked = (
        SYNCS["host-sync-item"],
        Call("cudaMemcpyAsync", "synchronisation", 1.0, 1, ("aten::masked_select", "aten::nonzero")),
    )
    ledger = [idle("synchronisation", 4.0)]
    printing = {"aten::masked_select": 1.0, "aten::isfinite": 1.0}
    assert set(raised(signals(ledger, host_calls=[item, masked], host_ops=printing), "host-sync-print")) == {
        "host-sync-print"
    }
    assert "host-sync-print" not in raised(
        signals(ledger, host_calls=[item], host_ops={"aten::item": 1.0}), "host-sync-print"
    )


def test_no_synchronisation_raises_nothing():
    launch = Call("cudaMalloc", "allocator", 1.0, 1)
    assert raised(signals([idle("synchronisation", 1.0)], host_calls=[launch]), "host-sync-item") == {}


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("gc", "host-garbage-collection"),
        ("checkpoint", "host-checkpoint"),
        ("compilation", "host-compiling-in-steps"),
    ],
)
def test_recorded_waits_are_what_they_are_called(cause, kind):
    assert set(raised(signals([compute("a", 8.0), idle(cause, 2.0)], host_waits_ms={}), kind)) == {kind}
    rare = raised(signals([compute("a", 10.0)], host_waits_ms={cause: 3.0}), kind)[kind]
    assert rare.gain_ms == 3.0
    assert raised(signals([compute("a", 10.0)], host_waits_ms={}), kind) == {}


@pytest.mark.parametrize(
    ("kind", "throttled"),
    [
        ("device-power-limit", {"power limit": 0.9}),
        ("device-thermal", {"thermal": 0.9, "power limit": 0.9}),
        ("device-power-brake", {"power brake": 0.5}),
        ("device-low-clocks", {}),
    ],
)
def test_low_clocks_have_the_gravest_reason(kind, throttled):
    sensors = Sensors(1500.0, 60.0, 300.0, throttled, 50)
    lowered = GPU | {"power_limit_w": 300.0, "power_limit_default_w": 700.0}
    result = raised(signals([compute("a", 10.0)], device_sensors=sensors, device_gpu=lowered), kind)
    assert set(result) == {kind}
    assert result[kind].claims[0].ms == pytest.approx(10.0 * (1 - 1500 / 1980))


def clocks_under_the_power_limit(**limits: float):
    sensors = Sensors(1500.0, 60.0, 690.0, {"power limit": 1.0}, 50)
    given = signals([compute("a", 10.0)], device_sensors=sensors, device_gpu=GPU | limits)
    return raised(given, "device-power-limit")


def test_the_board_s_own_power_limit_is_no_fault():
    assert clocks_under_the_power_limit(power_limit_w=700.0, power_limit_default_w=700.0) == {}
    assert clocks_under_the_power_limit(power_limit_w=750.0, power_limit_default_w=700.0) == {}
    with pytest.raises(UnknownSignalError, match="limits"):
        clocks_under_the_power_limit()


def test_a_power_limit_that_was_lowered_a_little_promises_only_what_it_takes():
    result = clocks_under_the_power_limit(power_limit_w=600.0, power_limit_default_w=700.0)
    gain = result["device-power-limit"].claims[0].ms / 10.0
    assert 1 - (600 / 700) ** (1 / 3) < gain < 1 - 600 / 700


def test_clocks_that_are_low_now_and_then_for_a_reason_were_not_locked():
    sensors = Sensors(1500.0, 60.0, 690.0, {"power limit": 0.1}, 50)
    given = signals([compute("a", 10.0)], device_sensors=sensors, device_gpu=GPU)
    assert raised(given, "device-low-clocks") == {}


def test_full_clocks_are_no_finding_whatever_the_reason_says():
    sensors = Sensors(1980.0, 60.0, 699.0, {"power limit": 1.0}, 50)
    assert (
        raised(signals([compute("a", 10.0)], device_sensors=sensors, device_gpu=GPU), "device-power-limit")
        == {}
    )


def test_links_are_judged_by_width_generation_and_what_is_off():

    ledger = [LedgerRow("copy", "HtoD pinned", 4.0), LedgerRow("copy", "DtoD", 1.0)]
    degraded = raised(
        signals(ledger, device_gpu=GPU | {"pcie_width": 8}, device_link_share=0.5), "device-link-degraded"
    )
    assert [claim.detail for claim in degraded["device-link-degraded"].claims] == ["HtoD pinned"]
    assert raised(signals(ledger, device_gpu=GPU, device_link_share=1.0), "device-link-degraded") == {}
    off = raised(
        signals([], device_gpu=GPU | {"nvlink": {"off": 2}}, device_link_share=1.0), "device-link-degraded"
    )
    assert off["device-link-degraded"].costless


def test_errors_of_memory_are_told_though_they_cost_nothing():
    bad = {"ecc_errors": {"corrected": 5, "uncorrected": 1, "rows_pending": False}}
    assert raised(signals([], device_gpu=GPU | bad), "device-ecc")["device-ecc"].costless
    assert raised(signals([], device_gpu=GPU), "device-ecc") == {}
    few = {"ecc_errors": {"corrected": 5, "uncorrected": 0, "rows_pending": False}}
    assert raised(signals([], device_gpu=GPU | few), "device-ecc") == {}


def test_without_any_signal_every_rule_abstains_and_none_fails():
    result, abstained = findings(Signals())
    assert result == []
    assert not [absence for absence in abstained if "failed" in absence.why]
    assert {absence.what for absence in abstained} <= {f"finding {kind}" for kind in kinds()}


def test_a_signal_that_is_not_known_says_why():
    with pytest.raises(UnknownSignalError, match="is not known"):
        Signals()["step.ms"]
    assert Signals({"a": None}).get("a").value is None
    assert Signals().number("nothing", 3.0) == 3.0
