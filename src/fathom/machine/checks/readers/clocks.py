"""Reasons for low GPU clocks: limits set by an administrator, and throttling."""

from __future__ import annotations

from fathom.machine.checks.gpu import Gpu, each
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, judged
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.files import NotOfferedError, UnreadableError
from fathom.units import NS_PER_S

SM, MEMORY = 1, 2
BY_SETTING = 0x2
THROTTLES = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POLICIES = {1: "heat", 3: "the board's limit", 5: "reliability"}
FLEETING = 1.0  # seconds; less since the driver was loaded is negligible


@reader("gpu.clock_limit")
def clock_limit(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        top, now = gpu.ask("MaxClockInfo", SM), gpu.ask("ClockInfo", SM)
        set_, usual = _application_clocks(gpu)
        if set_ is not None and usual is not None and set_ < usual:
            return judged(False, f"application clock {set_} MHz, {usual} MHz by default")
        capped = bool(_reasons(gpu) & BY_SETTING) and now < top
        return judged(not capped, f"{now} of {top} MHz{', capped by a setting' if capped else ''}")

    return each(host, look)


def _application_clocks(gpu: Gpu) -> tuple[int | None, int | None]:
    try:
        return gpu.ask("ApplicationsClock", SM), gpu.ask("DefaultApplicationsClock", SM)
    except (NotOfferedError, UnreadableError):  # newer GPUs lack it; throttle reasons show locked clocks
        return None, None


def _reasons(gpu: Gpu) -> int:
    try:
        return int(gpu.ask("CurrentClocksEventReasons"))
    except NotOfferedError:  # its name before driver 535
        return int(gpu.ask("CurrentClocksThrottleReasons"))


@reader("gpu.power_cap")
def power_cap(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        usual = gpu.ask("PowerManagementDefaultLimit")
        enforced = gpu.ask("EnforcedPowerLimit")
        words = f"limited to {enforced / 1000:.0f} W, {usual / 1000:.0f} W by default"
        return judged(enforced >= usual, words, watts=f"{usual / 1000:.0f}")

    return each(host, look)


@reader("gpu.throttling")
def throttling(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        reasons = _reasons(gpu)
        active = [name for bit, name in THROTTLES.items() if reasons & bit]
        return judged(not active, ", ".join(active) or "not throttled now")

    return each(host, look)


@reader("gpu.throttling_history")
def throttling_history(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        times = {
            why: gpu.ask("ViolationStatus", policy).violationTime / NS_PER_S
            for policy, why in POLICIES.items()
        }
        words = ", ".join(f"{seconds:.1f} s by {why}" for why, seconds in times.items())
        return judged(sum(times.values()) <= FLEETING, f"throttled since the driver was loaded: {words}")

    return each(host, look)


@reader("gpu.auto_boost")
def auto_boost(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        enabled, usual = gpu.ask("AutoBoostedClocksEnabled")
        return judged(bool(enabled) or not usual, f"auto boost is {'on' if enabled else 'off'}")

    return each(host, look)
