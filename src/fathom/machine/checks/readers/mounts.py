"""Read-ahead of mounted file systems."""

from __future__ import annotations

from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, abstained, judged, unfit
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.disks import mounts
from fathom.machine.files import UnreadableError

MOUNTS = "proc/self/mountinfo"
NFS = ("nfs", "nfs4")


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
