"""GPU health: memory errors, driver messages, temperature."""

from __future__ import annotations

import re
from collections import Counter

from fathom.machine.checks.gpu import Gpu, each, gpus, on_off, switched
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.files import NotOfferedError, UnreadableError

UNCORRECTED = 1
VOLATILE, AGGREGATE = 0, 1
CORE_SENSOR, SLOWDOWN = 0, 1
MARGIN = 5  # °C below the slowdown threshold
DOUBLE_BIT_CAUSE = 1
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
OF_PROGRAMS = {"13", "31", "43", "45"}  # faults of the program, according to NVIDIA's catalogue


@reader("gpu.ecc_mode")
def ecc_mode(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        current, pending = gpu.ask("EccMode")
        return switched("ECC", current, pending) or judged(bool(current), f"ECC is {on_off(current)}")

    return each(host, look)


@reader("gpu.ecc_errors")
def ecc_errors(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        recent = gpu.ask("TotalEccErrors", UNCORRECTED, VOLATILE)
        ever = gpu.ask("TotalEccErrors", UNCORRECTED, AGGREGATE)
        words = f"uncorrected memory errors: {recent} since the driver was loaded, {ever} in total"
        return judged(not recent, words)

    return each(host, look)


@reader("gpu.memory_repair")
def memory_repair(host: Host, check: Check) -> Answer:
    return each(host, lambda gpu: _remapped(gpu) or _retired(gpu))


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


@reader("gpu.temperature")
def temperature(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        now = gpu.ask("Temperature", CORE_SENSOR)
        limit = gpu.ask("TemperatureThreshold", SLOWDOWN)
        return judged(now <= limit - MARGIN, f"{now} °C, throttles at {limit} °C")

    return each(host, look)


@reader("gpu.persistence")
def persistence(host: Host, check: Check) -> Answer:
    def look(gpu: Gpu) -> Observation:
        mode = gpu.ask("PersistenceMode")
        return judged(bool(mode), f"persistence mode is {on_off(mode)}")

    return each(host, look)


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
