"""Clocks below their maximum, with the driver's reason."""

from __future__ import annotations

from typing import Any

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule
from fathom.diagnosis.signals import Sensors, Signals, UnknownSignalError

OFTEN = 0.2  # share of the busy time for which a reason applies
SELDOM = 0.05  # share of the busy time: above it, the reason explains clocks that are low at times
SLOW = 0.97  # of the maximal clock
AS_DELIVERED = 0.98  # of the board's default power limit: above it, nobody lowered the limit
POWER = 0.5  # clock ~ power^x: from x = 1/3 (voltage rises with the clock) to 1 (at the lowest voltage)


class Reason(msgspec.Struct, frozen=True):
    """A reason for throttling, as the sensors name it."""

    kind: str
    name: str
    says: str


REASONS = (  # the most serious first: a hot or braked device often runs at its power limit too
    Reason("device-power-brake", "power brake", "share of busy time with the machine's power brake on"),
    Reason("device-thermal", "thermal", "share of busy time with thermal throttling"),
    Reason("device-power-limit", "power limit", "share of busy time at the power limit"),
)


@rule("device-low-clocks", *(reason.kind for reason in REASONS))
def clocks(signals: Signals) -> Candidates:
    """A low clock without a reason was set by someone; throttling at the board's default limit is no loss."""
    sensors: Sensors = signals["device.sensors"]
    gpu = signals["device.gpu"]
    most, clock = gpu.get("sm_clock_max_mhz"), sensors.sm_clock_mhz
    if not most or not clock or clock >= SLOW * most:
        return
    reason = next((r for r in REASONS if sensors.throttled.get(r.name, 0.0) >= OFTEN), None)
    if reason is None and any(share >= SELDOM for share in sensors.throttled.values()):
        return
    possible = most
    if reason is not None and reason.kind == "device-power-limit":
        possible = min(clock * (_power_to_gain(gpu) ** POWER), most)
    if clock < SLOW * possible:
        yield _candidate(signals, reason, clock, possible, gpu)


def _power_to_gain(gpu: dict[str, Any]) -> float:
    """Ratio of the board's default power limit to the current one; 1 if the limit was not lowered."""
    limit, usual = gpu.get("power_limit_w"), gpu.get("power_limit_default_w")
    if not limit or not usual:
        raise UnknownSignalError("the device's power limits were not recorded")
    return 1.0 if limit >= AS_DELIVERED * usual else usual / limit


def _candidate(
    signals: Signals, reason: Reason | None, clock: float, possible: float, gpu: dict[str, Any]
) -> Candidate:
    throttled = signals["device.sensors"].throttled
    evidence = [Evidence(f"SM clock, of {gpu['sm_clock_max_mhz']:,.0f} MHz", clock, "MHz")]
    if reason is not None:
        evidence.append(Evidence(reason.says, 100 * throttled[reason.name], "%"))
    if reason is not None and reason.kind == "device-power-limit":
        usual = gpu["power_limit_default_w"]
        evidence.append(Evidence(f"power limit, {usual:,.0f} W by default", gpu["power_limit_w"], "W"))
    return Candidate(
        kind=reason.kind if reason else "device-low-clocks",
        claims=[
            Claim(c.entry, c.detail, (1 - clock / possible) * c.ms) for c in rows(signals, Entry.COMPUTE)
        ],
        evidence=evidence,
        changes=(f"all-kernels={clock / possible:.6f}",),
        doubt=0.3,
        check="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE",
    )
