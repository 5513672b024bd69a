"""Clocks below their maximum, by the reason that the driver gives."""

from __future__ import annotations

from typing import Any

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import Sensors, Signals, UnknownSignalError

OFTEN = 0.2  # of the busy time that a reason holds
SELDOM = 0.05  # of the busy time: more, and clocks that are low now and then have that reason
SLOW = 0.97  # of the maximal clock
AS_DELIVERED = 0.98  # of the board's default power limit: nobody lowered it
POWER = 0.5  # clocks grow with the power to 1/3 (voltage rises with them) up to 1 (at the lowest voltage)


class Reason(msgspec.Struct, frozen=True):
    """A reason to slow down, as sensors name it."""

    kind: str
    name: str
    says: str


REASONS = (  # the gravest first: what is hot or braked often runs against its power limit too
    Reason("device-power-brake", "power brake", "of the busy time the machine's supply brakes the device"),
    Reason("device-thermal", "thermal", "of the busy time the device is too hot"),
    Reason("device-power-limit", "power limit", "of the busy time the power limit holds the clocks down"),
)


@rule("device-low-clocks", *(reason.kind for reason in REASONS))
def clocks(signals: Signals) -> Found:
    """A clock that no reason explains was set so; what the board's own power limit takes is no loss."""
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
    """How much more power the board would allow as it is delivered; 1: its limit was not lowered."""
    limit, usual = gpu.get("power_limit_w"), gpu.get("power_limit_default_w")
    if not limit or not usual:
        raise UnknownSignalError("the limits of the device's power were not recorded")
    return 1.0 if limit >= AS_DELIVERED * usual else usual / limit


def _candidate(
    signals: Signals, reason: Reason | None, clock: float, possible: float, gpu: dict[str, Any]
) -> Candidate:
    throttled = signals["device.sensors"].throttled
    evidence = [Evidence(f"the clock, of {gpu['sm_clock_max_mhz']:,.0f} MHz", clock, "MHz")]
    if reason is not None:
        evidence.append(Evidence(reason.says, 100 * throttled[reason.name], "%"))
    if reason is not None and reason.kind == "device-power-limit":
        usual = gpu["power_limit_default_w"]
        evidence.append(Evidence(f"the limit, of {usual:,.0f} W by default", gpu["power_limit_w"], "W"))
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
