"""Read-ahead of mounted file systems."""

from __future__ import annotations

import re

from fathom.machine.checks.host import Host, UnreadableError
from fathom.machine.checks.model import Check, Observation, abstained, judged, unfit
from fathom.machine.checks.registry import Answer, reader

MOUNTS = "proc/self/mountinfo"
# ID, parent, device, root, mount point, options, optional fields, a dash, type (man 5 proc_pid_mountinfo)
MOUNT = re.compile(r"^\d+ \d+ (\d+:\d+) \S+ (\S+) \S+(?: \S+)*? - (\S+)", re.M)
NFS = ("nfs", "nfs4")


def _nfs_mounts(host: Host) -> dict[str, str]:
    """Return one mount point of each visible NFS file system by its device. Raises UnreadableError."""
    visible = {place: (device, kind) for device, place, kind in MOUNT.findall(host.text(MOUNTS))}
    if not visible:
        raise UnreadableError(f"/{MOUNTS} lists no mounts")
    places: dict[str, str] = {}
    for place, (device, kind) in visible.items():
        if kind in NFS:
            places.setdefault(device, place.replace("\\040", " "))
    return places


@reader("kernel.nfs_read_ahead")
def nfs_read_ahead(host: Host, check: Check) -> Answer:
    def look(device: str, place: str) -> Observation:
        try:
            ahead = host.number(f"sys/class/bdi/{device}/read_ahead_kb")
        except UnreadableError as error:  # must not hide the other mounts
            return abstained(str(error), place)
        return judged(ahead >= check.using["at_least"], f"{ahead} KiB of read-ahead", place, device=device)

    mounts = _nfs_mounts(host)
    return [look(*mount) for mount in mounts.items()] or unfit("no NFS file system is mounted")
