"""Clocks below their maximum, by the reason that the driver gives."""

from __future__ import annotations

from dataclasses import dataclass

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import Sensors, Signals

OFTEN = 0.2  # of the busy time that a reason holds
SLOW = 0.97  # of the maximal clock


@dataclass(frozen=True)
class Reason:
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
    """A clock that no reason explains was set so."""
    sensors: Sensors = signals["device.sensors"]
    gpu = signals["device.gpu"]
    most, clock = gpu.get("sm_clock_max_mhz"), sensors.sm_clock_mhz
    if not most or not clock or clock >= SLOW * most:
        return
    reason = next((r for r in REASONS if sensors.throttled.get(r.name, 0.0) >= OFTEN), None)
    evidence = [Evidence(f"the clock, of {most:,.0f} MHz", clock, "MHz")]
    if reason is not None:
        evidence.append(Evidence(reason.says, 100 * sensors.throttled[reason.name], "%"))
    yield Candidate(
        kind=reason.kind if reason else "device-low-clocks",
        claims=[Claim(c.entry, c.detail, (1 - clock / most) * c.ms) for c in rows(signals, "compute")],
        evidence=evidence,
        changes=(f"all-kernels={clock / most:.6f}",),
        doubt=0.3,
        check="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE",
    )
