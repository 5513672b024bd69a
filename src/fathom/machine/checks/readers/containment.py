"""Limits of a container: shared memory, capabilities, namespaces."""

from __future__ import annotations

import re

from fathom.machine import surroundings
from fathom.machine.checks.gpu import gpus, how_many
from fathom.machine.checks.host import UNLIMITED, Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.readers.cgroup import memory_bound
from fathom.machine.checks.readers.sharing import capabilities
from fathom.machine.checks.readers.versions import kind_at, mounted
from fathom.machine.checks.registry import reader
from fathom.machine.disks import mounts
from fathom.machine.files import NotOfferedError, UnreadableError, natural
from fathom.units import MIB

ENOUGH = 1 << 30  # bytes of /dev/shm
CAP_IPC_LOCK, CAP_SYS_NICE = 14, 23
INITIAL_IPC = 0xEFFFFFFF  # PROC_IPC_INIT_INO of the kernel's include/linux/proc_ns.h
LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def _contained(host: Host) -> str | None:
    """Return the container's runtime, or None outside a container."""
    kubernetes = "kubernetes" if "KUBERNETES_SERVICE_HOST" in host.environment else None
    return kubernetes or surroundings.container(host.root)


@reader("container.shm")
def shm(host: Host, check: Check) -> Observation:
    sizes = [mount.size for mount in mounts(host.text("proc/self/mountinfo")) if mount.point == "/dev/shm"]
    if not sizes:
        return failed("/dev/shm is not mounted", size=_half(host))
    if sizes[-1] is None:
        return passed("no size set: half of memory by default")
    return judged(sizes[-1] >= ENOUGH, f"/dev/shm holds {sizes[-1] / MIB:.0f} MiB", size=_half(host))


def _half(host: Host) -> str:
    """Return half of the memory available to this process in whole GiB, in docker's notation."""
    try:
        most = host.table("proc/meminfo").get("MemTotal", 0) << 10
        limit = memory_bound(host)
    except (NotOfferedError, UnreadableError):
        return "<SIZE>"
    size = min(filter(None, (most, limit)), default=0) // 2 >> 30
    return f"{size}g" if size else "<SIZE>"


@reader("container.ipc_lock")
def ipc_lock(host: Host, check: Check) -> Observation:
    if not _contained(host):
        return unfit("not in a container")
    if not host.paths("sys/class/infiniband/*"):
        return unfit("there is no RDMA device")
    if host.limits.get("memlock") == UNLIMITED:
        return passed("locked memory is unlimited")
    may = bool(capabilities(host, "CapEff") >> CAP_IPC_LOCK & 1)
    return judged(may, "CAP_IPC_LOCK is granted" if may else "neither CAP_IPC_LOCK nor an unlimited memlock")


@reader("container.sys_nice")
def sys_nice(host: Host, check: Check) -> Observation:
    if not _contained(host):
        return unfit("not in a container")
    if len(host.nodes) < 2:
        return unfit("there is one NUMA node")
    may = bool(capabilities(host, "CapBnd") >> CAP_SYS_NICE & 1)
    return judged(may, f"CAP_SYS_NICE is {'granted' if may else 'missing'}")


@reader("container.ipc")
def ipc(host: Host, check: Check) -> Observation:
    if not _contained(host):
        return unfit("not in a container")
    gpus(host)
    named = [host.environment[name] for name in LOCAL_RANKS if name in host.environment]
    ranks = (natural(named[0]) if named else None) or 1
    if ranks <= how_many(host):
        return unfit("this container has a GPU for every local rank")
    shared = _namespace(host) == INITIAL_IPC
    words = f"{ranks} ranks on this machine, {how_many(host)} GPUs in this container, "
    return judged(shared, words + ("the host's IPC namespace" if shared else "a private IPC namespace"))


def _namespace(host: Host) -> int:
    try:
        inode = re.search(r"\[(\d+)\]", str((host.root / "proc/self/ns/ipc").readlink()))
    except OSError as error:
        raise UnreadableError(f"/proc/self/ns/ipc cannot be read ({error.strerror})") from None
    if not inode:
        raise UnreadableError("/proc/self/ns/ipc does not name a namespace")
    return int(inode.group(1))


@reader("container.data_on_overlay")
def data_on_overlay(host: Host, check: Check) -> Observation:
    if not _contained(host):
        return unfit("not in a container")
    types = mounted(host)
    named = {name: host.environment[name] for name in check.using["names"] if host.environment.get(name)}
    places = {"the working directory": host.directory, **named}
    slow = {what: place for what, place in places.items() if kind_at(types, place) == "overlay"}
    words = ", ".join(f"{what} ({place})" for what, place in slow.items())
    moved = [f"-e {name}=/data/{name.lower()}" if name in named else "-w /data" for name in slow]
    words = f"on the container's writable layer: {words}" if slow else "on a volume"
    return judged(not slow, words, places=" ".join(moved))
