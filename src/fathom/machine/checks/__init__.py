"""Host checks: rows of data, small reader functions, and one result per check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import fathom.machine.checks.readers  # noqa: F401  (registers them)
from fathom.machine.checks.host import Host, this_host
from fathom.machine.checks.manifest import pods
from fathom.machine.checks.model import Check, Observation, Result, as_json, conclude
from fathom.machine.checks.registry import read
from fathom.machine.checks.script import fix_script
from fathom.machine.checks.storing import recalled, stored
from fathom.machine.checks.tables import GROUPS, checks, chosen

__all__ = [
    "GROUPS",
    "Check",
    "Host",
    "Observation",
    "Result",
    "as_json",
    "checks",
    "chosen",
    "examine",
    "fix_script",
    "pods",
    "recalled",
    "stored",
    "this_host",
]


def examine(host: Host, which: Iterable[Check] | None = None) -> list[Result]:
    """Run the checks and return their results, the costliest first. Never raises, whatever the host."""
    selected: Sequence[Check] = checks() if which is None else [*which]
    return [conclude(check, read(host, check)) for check in selected]
