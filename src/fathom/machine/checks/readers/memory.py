"""The kernel's memory management, writeback and read-ahead."""

from __future__ import annotations

import re

from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, abstained, failed, judged, passed, unfit
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.disks import mounts
from fathom.machine.files import UnreadableError

HUGE = "sys/kernel/mm/transparent_hugepage"
MEMINFO = "proc/meminfo"
IDLE_SHARE = 0.01  # of memory; less in unused huge pages is negligible
SWAPPED = 1 << 20  # kilobytes
MOUNTS = "proc/self/mountinfo"
NFS = ("nfs", "nfs4")


def _selected(host: Host, path: str) -> str:
    choice = re.search(r"\[([^\]\s]+)\]", host.text(path))
    if not choice:
        raise UnreadableError(f"/{path} does not mark a choice")
    return choice.group(1)


@reader("kernel.transparent_huge_pages")
def huge_pages_enabled(host: Host, check: Check) -> Observation:
    if not host.exists(HUGE):
        return unfit("this kernel does not support transparent huge pages")
    choice = _selected(host, f"{HUGE}/enabled")
    return judged(choice != "never", f"enabled: {choice}")


@reader("kernel.huge_page_defrag")
def huge_page_defrag(host: Host, check: Check) -> Observation:
    if not host.exists(HUGE) or _selected(host, f"{HUGE}/enabled") == "never":
        return unfit("transparent huge pages are off")
    choice = _selected(host, f"{HUGE}/defrag")
    return judged(choice != "always", f"defrag: {choice}")


@reader("kernel.huge_pages")
def huge_pages(host: Host, check: Check) -> Observation:
    memory = host.table(MEMINFO)
    try:
        total, free, size = (
            memory[f"{name}"] for name in ("HugePages_Total", "HugePages_Free", "Hugepagesize")
        )
        share = free * size / memory["MemTotal"]
    except (KeyError, ZeroDivisionError):
        return unfit("this kernel does not count huge pages")
    words = f"{free} of {total} reserved huge pages are unused, {100 * share:.1f} % of memory"
    return judged(share <= IDLE_SHARE, words)


@reader("kernel.swappiness")
def swappiness(host: Host, check: Check) -> Observation:
    if not host.table(MEMINFO).get("SwapTotal"):
        return unfit("there is no swap")
    value = host.number("proc/sys/vm/swappiness")
    return judged(value <= check.using["at_most"], f"swappiness is {value}")


@reader("kernel.swapped")
def swapped(host: Host, check: Check) -> Observation:
    memory = host.table(MEMINFO)
    if not memory.get("SwapTotal"):
        return unfit("there is no swap")
    if "SwapFree" not in memory:
        raise UnreadableError(f"/{MEMINFO} does not report free swap")
    used = memory["SwapTotal"] - memory["SwapFree"]
    return judged(used <= SWAPPED, f"{used / SWAPPED:.1f} GiB are swapped out")


@reader("kernel.dirty_ratio")
def dirty_ratio(host: Host, check: Check) -> Observation:
    if host.number("proc/sys/vm/dirty_bytes"):
        return passed("limits are set in bytes")
    hard = host.number("proc/sys/vm/dirty_ratio")
    soft = host.number("proc/sys/vm/dirty_background_ratio")
    words = f"writeback starts at {soft} % of memory and blocks writers at {hard} %"
    return judged(soft < hard and check.using["at_least"] <= hard <= check.using["at_most"], words)


@reader("kernel.numa_balancing", "kernel.zone_reclaim")
def off(host: Host, check: Check) -> Observation:
    """Check that the setting in `path`, which matters only with several NUMA nodes, is 0."""
    if len(host.nodes) < 2:
        return unfit("there is one NUMA node")
    value = host.number(check.using["path"])
    return judged(value == 0, f"{check.using['path'].rpartition('/')[2]} is {value}")


@reader("kernel.memory_errors")
def memory_errors(host: Host, check: Check) -> Observation:
    controllers = host.paths("sys/devices/system/edac/mc/mc[0-9]*")
    if not controllers:
        return unfit("the kernel does not monitor memory errors (no EDAC driver)")
    corrected = sum(host.number(f"{path}/ce_count") for path in controllers)
    lost = sum(host.number(f"{path}/ue_count") for path in controllers)
    return judged(not corrected + lost, f"{corrected} corrected and {lost} uncorrected errors since boot")


@reader("kernel.disk_scheduler")
def disk_scheduler(host: Host, check: Check) -> Observation:
    paths = host.paths("sys/block/nvme*/queue/scheduler")
    if not paths:
        return unfit("there is no NVMe disk")
    chosen = {path.split("/")[2]: _selected(host, path) for path in paths}
    slow = {disk: name for disk, name in chosen.items() if name not in ("none", "mq-deadline")}
    if not slow:
        return passed(", ".join(sorted({*chosen.values()})))
    words = ", ".join(f"{disk} uses {name}" for disk, name in slow.items())
    return failed(words)


def _nfs_mounts(host: Host) -> dict[str, str]:
    """Return one mount point of each visible NFS file system by its device. Raises UnreadableError."""
    visible = {mount.point: mount for mount in mounts(host.text(MOUNTS))}
    if not visible:
        raise UnreadableError(f"/{MOUNTS} lists no mounts")
    places: dict[str, str] = {}
    for mount in visible.values():
        if mount.type in NFS:
            places.setdefault(mount.device, mount.point)
    return places


@reader("kernel.nfs_read_ahead")
def nfs_read_ahead(host: Host, check: Check) -> Answer:
    def look(device: str, place: str) -> Observation:
        try:
            ahead = host.number(f"sys/class/bdi/{device}/read_ahead_kb")
        except UnreadableError as error:  # must not hide the other mounts
            return abstained(str(error), place)
        return judged(ahead >= check.using["at_least"], f"{ahead} KiB of read-ahead", place, device=device)

    return [look(*mount) for mount in _nfs_mounts(host).items()] or unfit("no NFS file system is mounted")
