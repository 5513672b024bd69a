"""GPU health: memory errors, driver messages, temperature, clocks and throttling."""

from __future__ import annotations

import re
from collections import Counter

from fathom.machine.checks.gpu import Gpu, gpu_reader, gpus, on_off, switched
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed
from fathom.machine.checks.registry import reader
from fathom.machine.files import NotOfferedError, UnreadableError
from fathom.units import NS_PER_S

UNCORRECTED = 1
VOLATILE, AGGREGATE = 0, 1
CORE_SENSOR, SLOWDOWN = 0, 1
MARGIN = 5  # °C below the slowdown threshold
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
OF_PROGRAMS = {"13", "31", "43", "45"}  # faults of the program, according to NVIDIA's catalogue
SM = 1
BY_SETTING = 0x2
THROTTLES = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POLICIES = {1: "heat", 3: "the board's limit", 5: "reliability"}
FLEETING = 1.0  # seconds; less since the driver was loaded is negligible


@gpu_reader("gpu.ecc_mode")
def ecc_mode(gpu: Gpu) -> Observation:
    current, pending = gpu.ask("EccMode")
    return switched("ECC", current, pending) or judged(bool(current), f"ECC is {on_off(current)}")


@gpu_reader("gpu.ecc_errors")
def ecc_errors(gpu: Gpu) -> Observation:
    recent = gpu.ask("TotalEccErrors", UNCORRECTED, VOLATILE)
    ever = gpu.ask("TotalEccErrors", UNCORRECTED, AGGREGATE)
    words = f"uncorrected memory errors: {recent} since the driver was loaded, {ever} in total"
    return judged(not recent, words)


@gpu_reader("gpu.memory_repair")
def memory_repair(gpu: Gpu) -> Observation:
    return _remapped(gpu) or _retired(gpu)


def _remapped(gpu: Gpu) -> Observation | None:
    """Check row remapping (Ampere and newer); None if the GPU retires pages instead."""
    try:
        corrected, lost, pending, broken = gpu.ask("RemappedRows")
    except NotOfferedError:
        return None
    state = "a remapping has failed" if broken else "one awaits a reset" if pending else "none pending"
    return judged(not (pending or broken), f"{corrected + lost} rows remapped, {state}")


def _retired(gpu: Gpu) -> Observation:
    pending = gpu.ask("RetiredPagesPendingStatus")
    return judged(not pending, "a page retirement is pending" if pending else "no page retirement is pending")


@reader("gpu.xid")
def xid(host: Host, check: Check) -> Observation:
    gpus(host)
    messages = XID.findall(_kernel_log(host))
    severe = Counter((address, code) for address, code in messages if code not in OF_PROGRAMS)
    if not severe:
        return passed(
            f"{len(messages)} Xid messages, all caused by programs" if messages else "no Xid message"
        )
    words = ", ".join(f"Xid {code} on {address} ({count} times)" for (address, code), count in severe.items())
    return failed(words)


def _kernel_log(host: Host) -> str:
    """Read the kernel's messages since boot. Raises UnreadableError if both sources are closed."""
    reasons = []
    for command in (["dmesg"], ["journalctl", "-k", "-b", "--no-pager", "-q"]):
        try:
            log = host.run(command)
        except UnreadableError as error:
            reasons.append(str(error))
            continue
        if log.strip():
            return log
        reasons.append(f"{command[0]} printed nothing")
    raise UnreadableError(f"the kernel's log cannot be read: {', '.join(reasons)}")


@gpu_reader("gpu.temperature")
def temperature(gpu: Gpu) -> Observation:
    now = gpu.ask("Temperature", CORE_SENSOR)
    limit = gpu.ask("TemperatureThreshold", SLOWDOWN)
    return judged(now <= limit - MARGIN, f"{now} °C, throttles at {limit} °C")


@gpu_reader("gpu.persistence")
def persistence(gpu: Gpu) -> Observation:
    mode = gpu.ask("PersistenceMode")
    return judged(bool(mode), f"persistence mode is {on_off(mode)}")


@reader("gpu.uniform")
def uniform(host: Host, check: Check) -> Observation:
    devices = gpus(host)
    if len(devices) < 2:
        raise NotOfferedError("there is only one GPU")
    kinds = Counter(
        (gpu.ask("Name"), gpu.ask("EnforcedPowerLimit") // 1000, gpu.ask("VbiosVersion")) for gpu in devices
    )
    words = "; ".join(
        f"{count} × {name}, {watts} W, VBIOS {bios}" for (name, watts, bios), count in kinds.items()
    )
    return judged(len(kinds) == 1, words)


@gpu_reader("gpu.clock_limit")
def clock_limit(gpu: Gpu) -> Observation:
    top, now = gpu.ask("MaxClockInfo", SM), gpu.ask("ClockInfo", SM)
    set_, usual = _application_clocks(gpu)
    if set_ is not None and usual is not None and set_ < usual:
        return judged(False, f"application clock {set_} MHz, {usual} MHz by default")
    capped = bool(_reasons(gpu) & BY_SETTING) and now < top
    return judged(not capped, f"{now} of {top} MHz{', capped by a setting' if capped else ''}")


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


@gpu_reader("gpu.power_cap")
def power_cap(gpu: Gpu) -> Observation:
    usual = gpu.ask("PowerManagementDefaultLimit")
    enforced = gpu.ask("EnforcedPowerLimit")
    words = f"limited to {enforced / 1000:.0f} W, {usual / 1000:.0f} W by default"
    return judged(enforced >= usual, words, watts=f"{usual / 1000:.0f}")


@gpu_reader("gpu.throttling")
def throttling(gpu: Gpu) -> Observation:
    reasons = _reasons(gpu)
    active = [name for bit, name in THROTTLES.items() if reasons & bit]
    return judged(not active, ", ".join(active) or "not throttled now")


@gpu_reader("gpu.throttling_history")
def throttling_history(gpu: Gpu) -> Observation:
    times = {
        why: gpu.ask("ViolationStatus", policy).violationTime / NS_PER_S for policy, why in POLICIES.items()
    }
    words = ", ".join(f"{seconds:.1f} s by {why}" for why, seconds in times.items())
    return judged(sum(times.values()) <= FLEETING, f"throttled since the driver was loaded: {words}")


@gpu_reader("gpu.auto_boost")
def auto_boost(gpu: Gpu) -> Observation:
    enabled, usual = gpu.ask("AutoBoostedClocksEnabled")
    return judged(bool(enabled) or not usual, f"auto boost is {'on' if enabled else 'off'}")
