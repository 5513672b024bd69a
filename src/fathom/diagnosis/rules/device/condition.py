"""Devices that run below their capability: slow links, memory errors, other processes, low clocks."""

from __future__ import annotations

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import ms_of, rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Sensors, Signals, Stretched, UnknownSignalError
from fathom.machine.model import Gpu

MANY_ERRORS = 100  # corrected ones: radiation alone causes a few
LEAST = 0.05  # of kernel time, lost to another process
FAMILIES = 2  # a time slice interrupts whichever kernel runs
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


@rule("device-link-degraded")
def links(signals: Signals) -> Candidates:
    """Compare the PCIe link while the device is busy: an idle link lowers its generation on purpose."""
    gpu, share = signals["device.gpu"], signals["device.link_share"]
    off = (gpu.get("nvlink") or {}).get("off") or 0
    if off:
        yield Candidate(
            claims=[],
            evidence=[Evidence("inactive NVLinks", float(off), "links")],
            costless=True,
            check="nvidia-smi nvlink -s",
        )
    if share < 1:
        copies = rows(signals, Entry.COPY, share=1 - share)
        yield Candidate(
            claims=[claim for claim in copies if claim.detail.startswith(("HtoD", "DtoH"))],
            evidence=[Evidence(_link_of(gpu), 100 * share, "%")],
            changes=(f"copy:HtoD={share:.6f}", f"copy:DtoH={share:.6f}"),
            check='nvidia-smi -q | grep -A8 "GPU Link Info"',
        )


def _link_of(gpu: Gpu) -> str:
    lanes = f"{gpu['pcie_width']} of {gpu['pcie_width_max']} lanes"
    return f"PCIe rate, with {lanes}, generation {gpu['pcie_generation']} of {gpu['pcie_generation_max']}"


@rule("device-ecc")
def memory_errors(signals: Signals) -> Candidates:
    """Report uncorrected errors, pending row remaps, or very many corrected errors: they can end the run."""
    counts = signals["device.gpu"].get("ecc_errors") or {}
    uncorrected, corrected = counts.get("uncorrected") or 0, counts.get("corrected") or 0
    if uncorrected or counts.get("rows_pending") or corrected > MANY_ERRORS:
        yield Candidate(
            claims=[],
            evidence=[
                Evidence("uncorrected errors", float(uncorrected), "errors"),
                Evidence("corrected errors", float(corrected), "errors"),
            ],
            costless=True,
            check="nvidia-smi -q -d ECC,ROW_REMAPPER",
        )


def interrupted(signals: Signals) -> bool:
    """Return whether another process interrupts kernels, so that their rates say nothing about them."""
    slices: Stretched | None = signals.get("device.stretched").value
    total = ms_of(rows(signals, Entry.COMPUTE))
    return slices is not None and slices.families >= FAMILIES and slices.ms >= LEAST * total


@rule("device-other-process")
def others(signals: Signals) -> Candidates:
    """Find interrupted kernels: longer by a time slice than other kernels of the same shape."""
    slices: Stretched = signals["device.stretched"]
    if not interrupted(signals):
        return
    total = ms_of(rows(signals, Entry.COMPUTE))
    share = min(slices.ms / total, 1.0)
    longer = "kernels at least 0.5 ms longer than their family's typical one"
    yield Candidate(
        claims=rows(signals, Entry.COMPUTE, share=share),
        evidence=[
            Evidence(longer, slices.count, "per step"),
            Evidence("extra time of these kernels", slices.ms, "ms per step"),
            Evidence("kernel families affected", float(slices.families), "families"),
        ],
        changes=(f"all-kernels={1 - share:.6f}",),
        doubt=0.3,
        confidence=0.7,
        check="nvidia-smi pmon -c 5",
    )


@rule("device-low-clocks", *(reason.kind for reason in REASONS))
def clocks(signals: Signals) -> Candidates:
    """Find clocks that were set too low; throttling at the board's default power limit does not count."""
    sensors: Sensors = signals["device.sensors"]
    gpu = signals["device.gpu"]
    most, clock = gpu.get("sm_clock_max_mhz"), sensors.sm_clock_mhz
    if not most or not clock or clock >= SLOW * most:
        return
    reason = next((r for r in REASONS if sensors.throttled.get(r.name, 0.0) >= OFTEN), None)
    if reason is None and any(share >= SELDOM for share in sensors.throttled.values()):
        return
    evidence, possible = [Evidence(f"SM clock, of {most:,.0f} MHz", clock, "MHz")], most
    if reason is not None:
        evidence.append(Evidence(reason.says, 100 * sensors.throttled[reason.name], "%"))
    if reason is not None and reason.kind == "device-power-limit":
        possible = min(clock * (_power_to_gain(gpu) ** POWER), most)
        usual = gpu["power_limit_default_w"]
        evidence.append(Evidence(f"power limit, {usual:,.0f} W by default", gpu["power_limit_w"], "W"))
    if clock < SLOW * possible:
        yield Candidate(
            kind=reason.kind if reason else "device-low-clocks",
            claims=rows(signals, Entry.COMPUTE, share=1 - clock / possible),
            evidence=evidence,
            changes=(f"all-kernels={clock / possible:.6f}",),
            doubt=0.3,
            check="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE",
        )


def _power_to_gain(gpu: Gpu) -> float:
    """Return the ratio of the board's default power limit to the current one; 1 if it was not lowered."""
    limit, usual = gpu.get("power_limit_w"), gpu.get("power_limit_default_w")
    if not limit or not usual:
        raise UnknownSignalError("the device's power limits were not recorded")
    return 1.0 if limit >= AS_DELIVERED * usual else usual / limit
