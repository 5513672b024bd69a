"""Find out whether hardware counters can be sampled here, and which counters were qualified before."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fathom.machine.files import text
from fathom.machine.model import Counters, Machine

MIG = "every GPU is partitioned by MIG, and a MIG slice has no counters; use a full GPU"
SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN


def why_no_counters(machine: Machine, root: Path = Path("/")) -> str | None:
    """Return the reason, in one clause, why counters cannot be sampled; None if none is known in advance."""
    if not machine["gpus"]:
        return f"there is no GPU ({machine.get('why_no_gpu') or 'the driver lists none'})"
    if all(gpu.get("mig") for gpu in machine["gpus"]):
        return MIG
    from fathom.probe.counters import PRIVILEGE  # imported late, because it loads the sampling code

    return None if may_count(root) in (True, None) else PRIVILEGE


def may_count(root: Path = Path("/")) -> bool | None:
    """Return whether this user may read counters; None if the NVIDIA kernel module does not report it."""
    restricted = re.search(r"RmProfilingAdminOnly:\s*(\d)", text(root / "proc/driver/nvidia/params"))
    if restricted is None:
        return None
    return restricted[1] == "0" or os.geteuid() == 0 or _administers(root)


def _administers(root: Path) -> bool:
    mask = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", text(root / "proc/self/status"), re.M)
    return mask is not None and bool(int(mask[1], 16) & SYS_ADMIN)


def counters_of(machine: Machine) -> Counters | None:
    """Return the counters qualified with the current driver version, or None if there are none."""
    known = machine.get("counters")
    if not isinstance(known, dict) or known.get("driver") != machine["versions"].get("driver"):
        return None
    return known if _named(known.get("groups")) and isinstance(known.get("interval_ns"), int) else None


def _named(groups: Any) -> bool:
    """Return whether `groups` is a non-empty list of non-empty lists of names."""
    if not isinstance(groups, list) or not groups or not all(isinstance(g, list) and g for g in groups):
        return False
    return all(isinstance(name, str) for group in groups for name in group)
