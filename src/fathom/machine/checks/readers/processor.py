"""Clocks, idle states and threads of the processor."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.machine.checks.gpu import how_many
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.registry import reader
from fathom.machine.files import NotOfferedError, UnreadableError, format_list, natural, parse_list

CPU = "sys/devices/system/cpu"
SLOW_WAKE = 50  # microseconds; shallow idle states wake in a few, deep ones in over a hundred
SELF_SCALING = ("intel_pstate", "amd-pstate-epp")
PRECISE = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


def _policies(host: Host, name: str) -> dict[str, str]:
    """Read a file of each cpufreq policy. Raises NotOfferedError if the kernel does not control clocks."""
    paths = host.paths(f"{CPU}/cpufreq/policy*/{name}")
    if not paths:
        raise NotOfferedError("the kernel does not control this processor's clocks (no cpufreq policy)")
    values = {path: host.text(path).strip() for path in paths}
    for path, value in values.items():
        if not value:
            raise UnreadableError(f"/{path} is empty")
    return values


@reader("kernel.governor")
def governor(host: Host, check: Check) -> Observation:
    governors = sorted({*_policies(host, "scaling_governor").values()})
    if governors == ["performance"]:
        return passed("`performance` on every core")
    drivers = {*_policies(host, "scaling_driver").values()}
    if drivers <= {*SELF_SCALING} and host.paths(f"{CPU}/cpufreq/policy*/energy_performance_preference"):
        wishes = sorted({*_policies(host, "energy_performance_preference").values()})
        return judged(wishes == ["performance"], f"{', '.join(governors)}, preference {', '.join(wishes)}")
    return failed(", ".join(governors))


@reader("kernel.turbo")
def turbo(host: Host, check: Check) -> Observation:
    for path, boosted in ((f"{CPU}/intel_pstate/no_turbo", 0), (f"{CPU}/cpufreq/boost", 1)):
        if host.exists(path):
            good = host.number(path) == boosted
            return judged(good, f"boost is {'on' if good else 'off'}", path=f"/{path}", value=str(boosted))
    return unfit("the kernel cannot switch this processor's boost")


@reader("kernel.cpu_clock_cap")
def clock_cap(host: Host, check: Check) -> Observation:
    caps = _policies(host, "scaling_max_freq")
    worst = 1.0
    for path, cap in caps.items():
        top = host.number(path.replace("scaling_max_freq", "cpuinfo_max_freq"))
        clock = natural(cap)
        if clock is None or top <= 0:
            raise UnreadableError(f"/{path} does not hold a clock")
        worst = min(worst, clock / top)
    return judged(worst >= 0.99, f"capped at {100 * worst:.0f} % of the processor's highest clock")


@reader("kernel.cstates")
def cstates(host: Host, check: Check) -> Observation:
    slow: dict[str, int] = {}
    states = host.paths(f"{CPU}/cpu[0-9]*/cpuidle/state[0-9]*/latency")
    if not states:
        return unfit("the kernel does not control this processor's idle states")
    for path in states:
        folder = path.removesuffix("/latency")
        wake = host.number(path)
        if wake > SLOW_WAKE and host.number(f"{folder}/disable") == 0:
            slow[host.text(f"{folder}/name").strip()] = wake
    words = ", ".join(f"{name} ({wake} µs to wake)" for name, wake in sorted(slow.items()))
    return judged(not slow, words or f"no enabled idle state takes over {SLOW_WAKE} µs to wake from")


@reader("kernel.smt")
def smt(host: Host, check: Check) -> Observation:
    if how_many(host):
        return unfit("the GPUs compute, and sibling threads serve loader workers")
    if not host.exists(f"{CPU}/smt/active") or not host.number(f"{CPU}/smt/active"):
        return unfit("no core runs two threads")
    usable = parse_list(host.text(f"{CPU}/online")) & (
        host.affinity or parse_list(host.text(f"{CPU}/online"))
    )
    cores = len({host.text(f"{CPU}/cpu{n}/topology/thread_siblings_list").strip() for n in usable})
    threads = natural(host.environment.get("OMP_NUM_THREADS", "").split(",")[0])
    if cores == len(usable) or (threads is not None and threads <= cores):
        return passed(f"{threads or len(usable)} compute threads on {cores} cores")
    return failed(
        f"{threads or 'as many as possible'} compute threads on {cores} cores with {len(usable)} threads",
        cores=str(cores),
    )


@reader("kernel.offline_cpus")
def offline_cpus(host: Host, check: Check) -> Observation:
    missing = parse_list(host.text(f"{CPU}/present")) - parse_list(host.text(f"{CPU}/online"))
    control = host.text(f"{CPU}/smt/control").strip() if host.exists(f"{CPU}/smt/control") else ""
    if missing and control in ("off", "forceoff"):
        return passed("only sibling threads are offline: SMT is off")
    return judged(not missing, f"offline: {format_list(missing)}")


@reader("kernel.cpu_throttling")
def throttling(host: Host, check: Check) -> Iterator[Observation]:
    paths = host.paths(f"{CPU}/cpu[0-9]*/thermal_throttle/package_throttle_count")
    if not paths:
        raise NotOfferedError("this processor does not count throttling events")
    count = max(host.number(path) for path in paths)
    yield judged(count == 0, f"throttled {count} times since boot")


@reader("kernel.clocksource")
def clocksource(host: Host, check: Check) -> Observation:
    source = host.text("sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
    if not source:
        raise UnreadableError("the kernel does not name a clock source")
    return judged(source in PRECISE, f"clock source: {source}")
