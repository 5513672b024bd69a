"""Environment variables, and the generic readers whose judgement is in the row: number, limit, variable."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fathom.machine.checks.gpu import gpus, how_many
from fathom.machine.checks.host import UNLIMITED, Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.readers.cgroup import quota_or_none
from fathom.machine.checks.registry import reader
from fathom.machine.files import UnreadableError, natural

NCCL_CONF = "etc/nccl.conf"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
MANY = 4  # usable cores per GPU; with more, a single thread leaves most of them idle


@reader("variable")
def variable(host: Host, check: Check) -> Observation:
    """Check that no variable in `names` has a value matching `refuse`, given at least `gpus` GPUs."""
    if how_many(host) < check.using.get("gpus", 0):
        gpus(host)
        return unfit(f"there are fewer than {check.using['gpus']} GPUs")
    bad = refused(check, _settings(host, check))
    if not bad:
        return passed(f"{', '.join(check.using['names'])}: unset or harmless")
    return failed(", ".join(f"{n}={v}" for n, v in bad.items()), names=" ".join(bad))


def refused(check: Check, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the row's variables whose values it refuses."""
    pattern = re.compile(check.using["refuse"], re.IGNORECASE | re.DOTALL)
    values = {name: settings.get(name) for name in check.using["names"]}
    return {
        name: value
        for name, value in values.items()
        if value is not None and pattern.fullmatch(value.strip())
    }


def _settings(host: Host, check: Check) -> Mapping[str, str]:
    """Return the environment; for NCCL variables on top of the administrator's file, as NCCL reads them."""
    if not any(name.startswith("NCCL_") for name in check.using["names"]) or not host.exists(NCCL_CONF):
        return host.environment
    lines = host.text(NCCL_CONF).splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {**{name.strip(): value.strip() for name, value in pairs}, **host.environment}


@reader("libraries.omp_threads")
def omp_threads(host: Host, check: Check) -> Observation:
    cores = len(host.affinity)
    if not cores:
        raise UnreadableError("this system does not report a process's CPUs")
    allowed = quota_or_none(host)
    usable = int(min(cores, max(allowed, 1))) if allowed else cores
    wanted = host.environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not wanted:
        words = f"OMP_NUM_THREADS is not set; {cores} CPUs are visible, {usable} usable"
        return judged(usable == cores, words, threads=str(usable))
    threads = natural(wanted)
    if threads is None:
        return failed(f"OMP_NUM_THREADS={wanted} is not a number", threads=str(usable))
    share = max(usable // max(how_many(host), 1), 1)
    idle = threads == 1 and share >= MANY
    words = f"OMP_NUM_THREADS={wanted}, {usable} usable CPUs for {max(how_many(host), 1)} processes"
    return judged(not idle and threads <= usable, words, threads=str(share))


@reader("libraries.allocator")
def allocator(host: Host, check: Check) -> Observation:
    gpus(host)
    settings = {name: host.environment[name] for name in ALLOCATOR if host.environment.get(name)}
    words = ", ".join(f"{name}={value}" for name, value in settings.items())
    if len({*settings.values()}) > 1:
        return failed(f"two conflicting settings: {words}", names=ALLOCATOR[1])
    split = any("max_split_size_mb" in value for value in settings.values())
    return judged(not split, words or "default", names=" ".join(settings))


@reader("number")
def number(host: Host, check: Check) -> Observation:
    """Check that the number in `path` is within `at_least` … `at_most`; the path `only_with` must exist."""
    using = check.using
    if "only_with" in using and not host.paths(using["only_with"]):
        return unfit(f"there is no /{using['only_with']}")
    value = host.number(using["path"])
    low, high = using.get("at_least", -UNLIMITED), using.get("at_most", UNLIMITED)
    return judged(low <= value <= high, f"/{using['path']} is {value}")


@reader("limit")
def limit(host: Host, check: Check) -> Observation:
    """Check that this process's soft limit `name` is at least `at_least`, in `unit`.

    The path `only_with` must exist.
    """
    using = check.using
    if "only_with" in using and not host.paths(using["only_with"]):
        return unfit(f"there is no /{using['only_with']}")
    value = host.limits.get(using["name"])
    if value is None:
        raise UnreadableError(f"this system does not report the limit {using['name']}")
    words = "unlimited" if value == UNLIMITED else f"{value:.0f} {using['unit']}"
    return judged(value >= using["at_least"], f"the soft limit is {words}")
