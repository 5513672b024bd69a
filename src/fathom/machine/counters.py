"""Hardware counters as far as the machine itself tells: what forbids them, and which are remembered."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fathom.machine.files import text
from fathom.probe.counters.reasons import PRIVILEGE

MIG = "every GPU is divided by MIG, and a slice has no counters; use a whole GPU"
SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN


def why_no_counters(machine: Mapping[str, Any], root: Path = Path("/")) -> str | None:
    """What forbids sampling before it is tried, in one clause; None where nothing is known to."""
    if not machine["gpus"]:
        return f"there is no GPU ({machine.get('why_no_gpu') or 'the driver lists none'})"
    if all(gpu.get("mig") for gpu in machine["gpus"]):
        return MIG
    return None if may_count(root) in (True, None) else PRIVILEGE


def may_count(root: Path = Path("/")) -> bool | None:
    """Whether this user may read counters; None where the kernel module does not tell."""
    told = re.search(r"RmProfilingAdminOnly:\s*(\d)", text(root / "proc/driver/nvidia/params"))
    if told is None:
        return None
    return told[1] == "0" or os.geteuid() == 0 or _administers(root)


def _administers(root: Path) -> bool:
    mask = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", text(root / "proc/self/status"), re.M)
    return mask is not None and bool(int(mask[1], 16) & SYS_ADMIN)


def counters_of(machine: Mapping[str, Any]) -> dict[str, Any] | None:
    """The counters that stream on it, as they were qualified under its present driver; None where unknown."""
    known = machine.get("counters")
    if not isinstance(known, dict) or known.get("driver") != machine["versions"].get("driver"):
        return None
    return known if _named(known.get("groups")) and isinstance(known.get("interval_ns"), int) else None


def _named(groups: Any) -> bool:
    """Whether these are lists of names, none of them empty."""
    if not isinstance(groups, list) or not groups:
        return False
    return all(isinstance(group, list) and group for group in groups) and all(
        isinstance(name, str) for group in groups for name in group
    )
