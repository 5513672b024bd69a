"""Limits of this process's control group, in cgroup versions 1 and 2."""

from __future__ import annotations

import math

from fathom.machine import cgroup
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, judged, unfit
from fathom.machine.checks.registry import reader
from fathom.machine.files import NotOfferedError, UnreadableError, format_list, natural, parse_list
from fathom.units import GIB

MEMORY = ("memory.max", "memory.limit_in_bytes")
OFTEN = 0.01  # of the scheduler's periods
FULL = 0.9  # of a limit
STALLED = 1.0  # percent of five minutes


def _find(host: Host, controller: str, *names: str) -> str:
    """Return the path of the first of these files that exists. Raises NotOfferedError."""
    for place in cgroup.groups(host.root, controller, host.text("proc/self/cgroup")):
        for name in names:
            path = (place / name).relative_to(host.root).as_posix()
            if ".." not in path.split("/") and host.exists(path):
                return path
    raise NotOfferedError(f"the control group limits no {controller}")


def _limit(host: Host, path: str) -> int | None:
    """Read a limit in bytes or processes; None for no limit."""
    text = host.text(path).strip()
    if text == "max":
        return None
    value = natural(text)
    if value is None:
        raise UnreadableError(f"/{path} does not hold a limit")
    return value if value < cgroup.UNLIMITED else None


@reader("container.cpu_throttled")
def cpu_throttled(host: Host, check: Check) -> Observation:
    counts = host.table(_find(host, "cpu", "cpu.stat"))
    periods = counts.get("nr_periods", 0)
    if not periods:
        return unfit("no CPU quota is set")
    share = counts.get("nr_throttled", 0) / periods
    words = f"stopped in {100 * share:.1f} % of {periods} scheduling periods"
    return judged(share <= OFTEN, words, cpus=_covering_cpus(host, quota_or_none(host)))


def quota(host: Host) -> float | None:
    """Return the CPUs that the quota allows, or None if there is no quota. Raises UnreadableError."""
    try:
        path = _find(host, "cpu", "cpu.max", "cpu.cfs_quota_us")
    except NotOfferedError:
        return None
    words = host.text(path)
    if path.endswith("cpu.cfs_quota_us"):
        words += " " + host.text(path.replace("quota", "period"))
    try:
        return cgroup.parse_quota(words)
    except ValueError:
        raise UnreadableError(f"/{path} does not hold a quota") from None


def quota_or_none(host: Host) -> float | None:
    """Return `quota`, or None if it cannot be read: another check reports that."""
    try:
        return quota(host)
    except UnreadableError:
        return None


def _covering_cpus(host: Host, allowed: float | None) -> str:
    """Return as many of this process's CPUs as the quota covers, rounded up."""
    if allowed is None or not host.affinity:
        return "<CPUS>"
    return format_list(sorted(host.affinity)[: max(math.ceil(allowed), 1)])


@reader("container.cpu_quota")
def cpu_quota(host: Host, check: Check) -> Observation:
    allowed = quota(host)
    if allowed is None:
        return unfit("no CPU quota is set")
    visible = len(host.affinity)
    words = f"a quota of {allowed:.1f} CPUs, while programs see {visible}"
    return judged(
        allowed >= visible, words, cpus=_covering_cpus(host, allowed), threads=str(max(int(allowed), 1))
    )


@reader("container.cpuset_nodes")
def cpuset_nodes(host: Host, check: Check) -> Observation:
    if len(host.nodes) < 2:
        return unfit("there is one NUMA node")
    every = frozenset[int]().union(*host.nodes.values())
    allowed = (
        parse_list(host.text(_find(host, "cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus"))) & every
    )
    if not allowed or allowed == every:
        return unfit("the control group may use every CPU")
    used = [node for node, cpus in host.nodes.items() if cpus & allowed]
    would_fit = len(allowed) <= max(len(cpus) for cpus in host.nodes.values())
    node = max(
        host.nodes, key=lambda n: (len(host.nodes[n]) >= len(allowed), len(host.nodes[n] & allowed), -n)
    )
    fill = {"node": str(node), "cpus": format_list(sorted(host.nodes[node])[: len(allowed)])}
    words = f"{len(allowed)} CPUs on NUMA nodes {format_list(used)}"
    return judged(len(used) == 1 or not would_fit, words, **fill)


def memory_bound(host: Host) -> int | None:
    """Return the group's memory limit in bytes, or None if there is none. Raises UnreadableError."""
    try:
        return _limit(host, _find(host, "memory", *MEMORY))
    except NotOfferedError:
        return None


@reader("container.memory_limit")
def memory_limit(host: Host, check: Check) -> Observation:
    path = _find(host, "memory", *MEMORY)
    limit = _limit(host, path)
    if not limit:
        return unfit("no limit on memory")
    folder = path.rpartition("/")[0]
    old = path.endswith("limit_in_bytes")
    used = host.number(f"{folder}/{'memory.usage_in_bytes' if old else 'memory.current'}")
    idle = host.table(f"{folder}/memory.stat").get("total_inactive_file" if old else "inactive_file", 0)
    needed = max(used - idle, 0)
    words = f"{100 * needed / limit:.0f} % of {limit / GIB:.1f} GiB in use, without reclaimable cache"
    return judged(needed / limit <= FULL, words, size=f"{math.ceil(needed / FULL / GIB)}g")


@reader("container.memory_events")
def memory_events(host: Host, check: Check) -> Observation:
    counts = host.table(_find(host, "memory", "memory.events", "memory.oom_control"))
    killed, throttled = counts.get("oom_kill", 0), counts.get("high", 0)
    return judged(not killed + throttled, f"{killed} processes killed and {throttled} throttled for memory")


@reader("container.memory_pressure")
def memory_pressure(host: Host, check: Check) -> Observation:
    text = host.text(_find(host, "memory", "memory.pressure"))
    full = [line for line in text.splitlines() if line.startswith("full")]
    values = dict(word.split("=", 1) for line in full for word in line.split() if "=" in word)
    try:
        share = float(values["avg300"])
    except (KeyError, ValueError):
        raise UnreadableError("the kernel's pressure file has an unknown format") from None
    return judged(share <= STALLED, f"all processes stalled on memory {share:.1f} % of the last 5 minutes")


@reader("container.processes")
def processes(host: Host, check: Check) -> Observation:
    path = _find(host, "pids", "pids.max")
    limit = _limit(host, path)
    if limit is None:
        return unfit("no limit on processes")
    now = host.number(f"{path.rpartition('/')[0]}/pids.current")
    enough = limit >= check.using["at_least"] and now <= FULL * limit
    return judged(enough, f"{now} of {limit} processes and threads")
